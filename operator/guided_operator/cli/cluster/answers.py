"""What the API server is to answer: the shape of all that `status` looks at, whatever stands beside it."""

from typing import Any, Required, TypedDict

import msgspec

from guided_operator.kube.api_errors import ApiError

Object = dict[str, Any]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str | None
    observedGeneration: int


class _Component(TypedDict, total=False):
    name: str
    version: str


class _Resolved(TypedDict, total=False):
    image: str
    modelRunner: str
    components: list[_Component] | None


class _Named(TypedDict, total=False):
    """A patch or a grammar."""

    name: str
    state: str
    reason: str
    compileMillis: int


class _Processor(TypedDict, total=False):
    name: str
    failures: int


class _Processors(TypedDict, total=False):
    worst: list[_Processor] | None


class _Patches(TypedDict, total=False):
    applied: int
    skipped: int
    failed: int
    worst: list[_Named] | None


class _Grammars(TypedDict, total=False):
    ready: int
    pending: int
    stale: int
    failed: int
    worst: list[_Named] | None


class _RankCounts(TypedDict, total=False):
    total: int
    missing: int
    desynced: int


class _Rank(TypedDict, total=False):
    pod: str
    rank: int
    state: str
    desyncs: int


class _Ranks(_RankCounts, total=False):
    worst: list[_Rank] | None


class _Workers(TypedDict, total=False):
    ready: int
    restarts: int


class _Failure(TypedDict, total=False):
    code: str
    message: str
    time: str


class _Pod(TypedDict, total=False):
    name: str
    ready: bool
    reason: str
    ranks: _RankCounts | None
    grammarWorkers: _Workers | None
    lastFailure: _Failure | None


class _Pods(TypedDict, total=False):
    total: int
    worst: list[_Pod] | None


class _Status(TypedDict, total=False):
    observedGeneration: int
    readyReplicas: int
    url: str
    revision: str
    conditions: list[_Condition] | None
    resolved: _Resolved | None
    patches: _Patches | None
    grammars: _Grammars | None
    logitsProcessors: _Processors | None
    pods: _Pods | None
    ranks: _Ranks | None


class _Spec(TypedDict, total=False):
    replicas: int


class _Metadata(TypedDict):
    namespace: str
    name: str
    generation: int


class _Model(TypedDict, total=False):
    metadata: Required[_Metadata]
    spec: Required[_Spec]
    status: _Status | None


class _NameOnly(TypedDict):
    name: str


class _Item(TypedDict):
    metadata: _NameOnly


class _Items(TypedDict):
    items: list[_Item]


class _ListMetadata(TypedDict):
    resourceVersion: str


class _List(TypedDict):
    metadata: _ListMetadata
    items: list[_Model]


class _Event(TypedDict):
    type: str
    object: Object


def models_of(answer: Any) -> list[Object]:
    """Return the models of a list.

    Raises
    ------
    ApiError
        It is no list of GuidedModels.
    """
    _require(answer, _List)
    found: list[Object] = answer["items"]
    return found


def names_of(answer: Any) -> list[str]:
    """Return the names of a list's objects.

    Raises
    ------
    ApiError
        It is no list of objects.
    """
    _require(answer, _Items)
    return [item["metadata"]["name"] for item in answer["items"]]


def model_of(event: Any) -> Object | None:
    """Return the model of a watch's event; None: it is an error.

    Raises
    ------
    ApiError
        It is no event of a GuidedModel.
    """
    _require(event, _Event)
    if event["type"] == "ERROR":
        return None
    _require(event["object"], _Model)
    found: Object = event["object"]
    return found


def _require(answer: Any, shape: Any) -> None:
    try:
        msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise ApiError(f"the API server's answer is not as expected: {error}") from error

"""What the API server is to answer: the shape of all that `status` looks at, whatever stands beside it."""

from typing import Any, Required, TypedDict

import msgspec

from guided_operator.kube.apiserver import ApiError

Object = dict[str, Any]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str | None
    observedGeneration: int


class _Resolved(TypedDict, total=False):
    image: str
    vllmVersion: str
    modelRunner: str
    pluginVersion: str
    grammarLibraries: dict[str, str] | None


class _Named(TypedDict, total=False):
    """A patch or a grammar."""

    name: str
    state: str
    reason: str
    compileMillis: int


class _Rank(TypedDict, total=False):
    rank: int
    state: str
    desyncs: int


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
    ranks: list[_Rank] | None
    grammarWorkers: _Workers | None
    lastFailure: _Failure | None


class _Status(TypedDict, total=False):
    observedGeneration: int
    readyReplicas: int
    url: str
    revision: str
    conditions: list[_Condition] | None
    resolved: _Resolved | None
    patches: list[_Named] | None
    grammars: list[_Named] | None
    pods: list[_Pod] | None


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

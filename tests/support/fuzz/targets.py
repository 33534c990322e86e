"""What strangers send, and what reads it: a client's grammars, a pod's status page, a tenant's objects."""

import contextlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from guided_contract import names, status, wire
from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.status import PodStatus, RankStatus
from guided_contract.wire import Backend, Kind, Patch
from guided_grammar.json_schema import subschemas
from guided_grammar.registry import library
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.watch.cache import Cache
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.compile import followed
from guided_sidecar.grammar.prepare import jobs
from guided_sidecar.grammar.schema import additional_properties, limits, normal, schema
from guided_sidecar.grammar.worker_messages import Done
from support.compositions import schemas as drawn_schemas
from support.soak import requests

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
_MOST_BYTES: Final = 16 << 10
_MOST_REFUSAL_BYTES: Final = 32 << 10
_LIMITS: Final = CompileConfig()
_WATCHED: Final = (*kinds.WATCHED, kinds.MODEL)
_RUNS: Final = (b"\x00", b"\xff", b"[", b'{"a":', b"9", b"(", b"\xc1")
_VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        -1,
        0,
        1 << 31,
        1 << 63,
        1 << 70,
        1e308,
        math.nan,
        math.inf,
        "",
        "\x00",
        "../x",
        "x" * 5000,
    ),
    *([], {}, [[]], {"": 0}, {"type": 0}, ["a", 1], [0] * 300, dict.fromkeys(map(str, range(300)), 0)),
    *("\ud800", 10**4000, "$", "#/$defs/a", "^(a+)+$"),
)


class Target(NamedTuple):
    """What reads what others send: real messages, and a reader that raises only for what must not happen."""

    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return a copy with one value or some bytes changed; its first byte numbers a kind."""
    if chance.random() > 0.2:
        with contextlib.suppress(ValueError, RecursionError):
            return data[:1] + json.dumps(_changed([json.loads(data[1:])], chance)).encode()
    at = chance.randrange(1, len(data) + 1)
    run = chance.choice(_RUNS) * chance.choice((0, 1, 64, 5000))
    return data[:at] + run + data[at + chance.choice((0, 1, 8, 4096)) :]


def _changed(whole: list[Any], chance: random.Random) -> Any:
    """Return the only item with one value in it changed, taken from elsewhere, or gone."""
    places = [*_places(whole)]
    container, key = chance.choice(places)
    other, elsewhere = chance.choice(places)
    if container is whole or chance.random() < 0.8:
        container[key] = chance.choice((*_VALUES, other[elsewhere]))
    else:
        del container[key]
    return whole[0]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value, with each key or index of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def replay(target: Target, seed: int, count: int) -> None:
    """Run the seeds and `count` inputs made from them; what a target must not do is raised with its input."""
    chance = random.Random(seed)
    seeds = target.seeds()
    for number in range(len(seeds) + count):
        data = seeds[number] if number < len(seeds) else mutate(chance.choice(seeds), chance)
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"input: {data[:2000]!r}")
            raise


def _grammars() -> list[bytes]:
    """Return drawn requests' grammars, and schemas of all keywords that we know of."""
    asked = [(one.kind, one.spec) for one in requests.drawn(0, 60) if one.kind != "none"]
    asked += [("json", json.dumps(drawn_schemas.schema(random.Random(number)))) for number in range(40)]
    return [bytes([_KINDS.index(kind)]) + spec.encode() for kind, spec in asked]


def _take_grammar(data: bytes) -> None:
    """Do with a grammar what the service does, and the worker before it compiles.

    Nothing but a GuidedError may come of it, and what comes of it must fit a frame.
    """
    kind = _KINDS[data[0] % len(_KINDS)] if data else "json"
    text = data[1:].decode(errors="surrogateescape")
    try:
        written = limits.parsed(kind, jobs.taken(kind, text, _MOST_BYTES), _LIMITS)
        spec = written if isinstance(written, str) else json.dumps(written)
        assert limits.parsed(kind, spec, _LIMITS) == written
        wire.frame(wire.Prepare(id=1, kind=kind, spec=spec, timeout_s=1))
        if kind == "structural_tag":
            subschemas.with_each_of_tag(written, lambda _, inner: _follow(inner))
        elif kind == "json":
            _follow(written)
    except GuidedError as error:
        wire.frame(worker_messages.Failed(code=error.code, message=error.message, path=error.path))
        refused = wire.Refused(id=1, code=error.code, message=error.message, path=error.path)
        assert len(wire.frame(refused)) < _MOST_REFUSAL_BYTES


def _follow(parsed: Any) -> None:
    schema.check(parsed)
    before = json.dumps(parsed)
    form = normal.read(parsed).schema
    for backend in _BACKENDS:
        if (gap := library(backend).lacks("json", form)) is not None:
            msgspec.msgpack.encode(gap)
        relaxed, positions = followed.split(additional_properties.close(form), backend)
        wire.frame(Done(backend=backend, spec=json.dumps(relaxed), positions=positions))
    assert json.dumps(parsed) == before, "the schema itself was changed"


def _pages() -> list[bytes]:
    page = PodStatus(
        ready=False,
        reason="RanksMissing",
        ranks=[RankStatus(rank=0, state="Missing")],
        patches=[Patch(name="p", state="Skipped")],
    )
    return [b"\0" + status.encode(page)]


def _read_page(data: bytes) -> None:
    """Read a sidecar's status page, which a tenant's pod serves, as the operator does."""
    try:
        page = status.decode(data[1:])
    except ValueError:
        return
    assert status.decode(status.encode(page)) == page


def _objects() -> list[bytes]:
    """Return an object of each kind that the operator watches."""
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Error: a\nb"}}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}
    container = {"name": names.ENGINE_CONTAINER, "restartCount": 1, "state": waiting, "lastState": ended}
    owner = {"apiVersion": "x/v1", "kind": names.KIND, "name": "m", "uid": "u", "controller": True}
    item = {
        "metadata": {
            "labels": {names.LABEL_NAME: "m", names.LABEL_REVISION: "r", names.LABEL_NODE: "1"},
            "annotations": {"a": "b"},
            "ownerReferences": [owner],
            "generation": 2,
        },
        "spec": {"replicas": 1, "nodeName": "n", "containers": [{"name": "x"}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
            "containerStatuses": [container],
        },
        "data": {"a": "x"},
        "revision": 1,
    }
    return [bytes([number]) + msgspec.json.encode(item) for number in range(len(_WATCHED))]


def _watch(data: bytes) -> None:
    """Watch an object that a tenant wrote: it keeps none of another from being seen.

    An API server gives each object a name, a namespace, a uid and a version; all else may be anything here.
    """
    kind = _WATCHED[data[0] % len(_WATCHED)] if data else kinds.MODEL
    try:
        bad = msgspec.json.decode(data[1:])
        bad["metadata"] = {**bad["metadata"], **_identity("bad")}
    except (KeyError, TypeError, ValueError, RecursionError):
        return  # no object that an API server would send
    good = msgspec.json.decode(_objects()[0][1:])
    good["metadata"] |= _identity("good")
    woken = list[Key]()
    cache = Cache(woken.append)
    for event, each in (("ADDED", bad), ("ADDED", good), ("MODIFIED", bad), ("DELETED", bad)):
        cache.take(kind, event, each)
    if kind is kinds.MODEL:
        assert Key("ns", "good") in cache.models()
    else:
        assert "good" in cache.items(Key("ns", "m"), kind)
        assert Key("ns", "m") in woken
    assert not any(cache.unreadable().values())


def _identity(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}


TARGETS: Final = {
    "schemas": Target(_grammars, _take_grammar),
    "page": Target(_pages, _read_page),
    "watched": Target(_objects, _watch),
}

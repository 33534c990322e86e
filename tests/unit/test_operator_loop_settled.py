"""What was seen before and had nothing to do is spared a pass; whatever differs is not."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from guided_contract import names, status
from guided_operator import kinds
from guided_operator.observe import Observed
from guided_operator.queue import Key
from guided_operator.settled import Settled
from guided_operator.sidecars import Page
from guided_operator.store import Store
from support.observed import model, pod, seen

PERIOD_S = 600.0
STATUS = {"revision": "r", "replicas": 1}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def observed(**changes: Any) -> Observed:
    page = Page(status.PodStatus(ready=True))
    base = dataclasses.replace(seen({**model(), "status": STATUS}), pods=(pod("a", "r"),), mark=7)
    return dataclasses.replace(base, **{"pages": {"uid-a": page}, **changes})


def test_same_again_needs_no_pass_until_the_period_is_over() -> None:
    clock = Clock()
    settled = Settled(clock)
    assert settled.rest_s(observed()) is None, "nothing is known of it"
    settled.note(observed(), STATUS, PERIOD_S)
    clock.now_s = 200.0
    assert settled.rest_s(observed()) == 400.0
    clock.now_s = 600.0
    assert settled.rest_s(observed()) is None
    settled.note(observed(), STATUS, PERIOD_S)
    settled.forget(observed().key)
    assert settled.rest_s(observed()) is None


def test_status_that_a_pass_wrote_is_the_one_to_find() -> None:
    settled = Settled(Clock())
    before = observed(model={**model(), "status": {}})
    settled.note(before, STATUS, PERIOD_S)
    assert settled.rest_s(observed()) is not None
    assert settled.rest_s(before) is None, "somebody took the status back"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model": {**model(replicas=2), "status": STATUS}}, id="spec"),
        pytest.param({"model": {**model(), "status": {**STATUS, "replicas": 2}}}, id="status"),
        pytest.param({"mark": 8}, id="children or pods"),
        pytest.param({"pages": {"uid-a": Page(status.PodStatus(ready=False))}}, id="a page"),
        pytest.param({"pages": {}}, id="no page"),
        pytest.param({"sources": {"texts": {"a": "b"}}}, id="a grammar"),
        pytest.param({"blind": {"Service": "no"}}, id="a kind forbidden"),
        pytest.param({"absent": frozenset({"PodMonitor"})}, id="an API gone"),
    ],
)
def test_whatever_differs_needs_a_pass(changes: dict[str, Any]) -> None:
    settled = Settled(Clock())
    settled.note(observed(), STATUS, PERIOD_S)
    assert settled.rest_s(observed(**changes)) is None


def put(store: Store, kind: kinds.Kind, name: str, **fields: Any) -> None:
    labels = {names.LABEL_NAME: "m"}
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels}
    store.put(kind, {"metadata": metadata, **fields})


@pytest.mark.parametrize(
    "change",
    [
        lambda store: put(store, kinds.SERVICE, "m", spec={"a": 2}),
        lambda store: put(store, kinds.SERVICE, "other", spec={}),
        lambda store: put(store, kinds.CONFIG_MAP, "m", data={}),
        lambda store: put(store, kinds.POD, "p", spec={"nodeName": "n"}, status={"phase": "Failed"}),
        lambda store: store.retain(kinds.SERVICE, []),
    ],
)
def test_store_marks_each_state_of_a_models_objects(change: Callable[[Store], None]) -> None:
    key, marks = Key("ns", "m"), []
    store = Store()
    put(store, kinds.SERVICE, "m", spec={"a": 1})
    put(store, kinds.POD, "p", spec={"nodeName": "n"}, status={"phase": "Running"})
    marks.append(store.mark(key))
    put(store, kinds.MODEL, "m", spec={})
    assert store.mark(key) == marks[0], "the model itself is not among them"
    change(store)
    assert store.mark(key) != marks[0]

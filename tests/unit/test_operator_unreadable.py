"""What one tenant writes and nobody can read ends no watch."""

import dataclasses
from typing import Any

from guided_contract import names
from guided_operator.kube import kinds
from support.watched import KEY, Watched

Object = dict[str, Any]


async def test_an_object_that_cannot_be_read_is_left_out_and_told_of() -> None:
    kind = dataclasses.replace(kinds.SERVICE, view=lambda item: int(item["spec"]["x"]))
    watched = Watched(kind)

    def seen() -> Object:
        return dict(watched.store.items(KEY, kind))

    watched.put("bad", x="y")
    watched.put("good", x="1")
    async with watched.running():
        assert seen() == {"good": 1}
        assert watched.reflector.unreadable == {("ns", "bad")}
        for name, x in (("good", "z"), ("other", "2"), ("bad", "3")):
            watched.api.events.put_nowait({"type": "MODIFIED", "object": watched.put(name, x=x)})
        await watched.until(1)
        assert seen() == {"other": 2, "bad": 3}
        assert watched.reflector.unreadable == {("ns", "good")}
        watched.api.events.put_nowait({"type": "DELETED", "object": watched.put("good", listed=False, x="z")})
        await watched.until(1)
        assert not watched.reflector.unreadable
    assert watched.reflector.broken == 0


def test_a_pod_whose_place_in_its_group_is_no_number_has_none() -> None:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {names.LABEL_NAME: "m", names.LABEL_NODE: "x"},
        },
        "spec": {},
    }
    assert kinds.POD.project(pod).node == -1

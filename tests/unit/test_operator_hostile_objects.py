"""Objects that a tenant made to be dear or impossible to read: the others of their list or watch go on."""

import asyncio
import contextlib
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from guided_contract import names
from guided_operator.api import parse
from guided_operator.api.logits_processors import LEFT_OUT, MAX_PARAMS_DEPTH
from guided_operator.cli.command_line import main
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectInvalid
from guided_operator.kube.key import Key
from guided_operator.policy.spec_checks import check
from guided_operator.watch.cache import thinned
from support.manifests import changed, minimal
from support.text_plane import Plane, text_of, watched, write
from support.waiting import until

Object = dict[str, Any]
KEY = Key("ns", "m")
MIB = 1 << 20
LONG = '"' + 900_000 * "\\u003c" + '"'  # as Go writes `<`: a line of 5 MiB
DEPTHS = (150, 9900)  # below and far above what Python parses; the API server takes 10,000


def nested(depth: int) -> str:
    return '{"f:a":' * depth + "{}" + "}" * depth


def item(name: str, version: int = 1, **fields: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {names.LABEL_NAME: "m"},
        "ownerReferences": [{"kind": names.KIND, "uid": "u", "controller": True}],
    }
    return {"metadata": metadata, "spec": {}, **fields}


def deep(name: str, depth: int, version: int = 1) -> str:
    one = item(name, version)
    one["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": "@deep"}]
    return text_of(one, deep=nested(depth))


@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_child_nested_too_deeply_is_seen_beside_the_others(depth: int) -> None:
    kind = kinds.POD
    plane = Plane(kind)
    plane.listed = [text_of(item("a")), deep("bad", depth), text_of(item("b"))]
    async with watched(plane) as seen:
        await until(lambda: set(seen.cache.items(KEY, kind)) == {"a", "bad", "b"})
        plane.tell("DELETED", deep("a", depth, 6))
        plane.tell("ADDED", text_of(item("large", 7, x="@x"), x=LONG))
        plane.tell("ADDED", text_of(item("c", 8)))
        await until(lambda: set(seen.cache.items(KEY, kind)) == {"bad", "b", "large", "c"})
    assert plane.lists == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"ERROR","object":{"kind":"Status","code":410}}',
        "<html>log in here</html>",
    ],
)
async def test_what_vanished_while_a_watch_was_broken_is_gone_once_it_is_listed_again(line: str) -> None:
    plane = Plane(kinds.SERVICE)
    plane.listed = [text_of(item("a")), text_of(item("b"))]
    async with watched(plane) as seen:
        await until(lambda: set(seen.cache.items(KEY, kinds.SERVICE)) == {"a", "b"})
        del plane.listed[0]
        seen.woken.clear()
        plane.events.put_nowait(line)
        await until(lambda: set(seen.cache.items(KEY, kinds.SERVICE)) == {"b"})
        assert seen.woken == [KEY]
        assert seen.informers.failures()["Service"] == 1


@pytest.mark.parametrize("answer", [(403, "{}"), (410, '{"kind":"Status"}'), (200, "<html>")])
async def test_no_answer_to_a_list_ends_it(answer: tuple[int, str]) -> None:
    plane = Plane(kinds.SERVICE)
    plane.answers = [answer] * 2
    plane.listed = [text_of(item("a"))]
    async with watched(plane) as seen:
        await until(lambda: set(seen.cache.items(KEY, kinds.SERVICE)) == {"a"})
        await until(seen.informers.is_synced)
        assert seen.informers.failures()["Service"] == 2


def hostile_models() -> dict[str, str]:
    """Return GuidedModels by name, each with something that kopf or a parser would stumble over."""
    found = {}
    for depth in (20, *DEPTHS):
        processor = {"name": "x", "factory": "a.b:C", "params": {"p": "@deep"}}
        one = item(f"deep{depth}", spec={"logitsProcessors": [processor]})
        found[f"deep{depth}"] = text_of(one, deep=nested(depth))
    found["fields"] = deep("fields", 1100)
    noted = item("noted")
    noted["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "{not json"}
    noted["metadata"]["finalizers"] = ["kopf.zalando.org/KopfFinalizerMarker"]
    return {**found, "noted": text_of(noted), "good": text_of(item("good"))}


async def test_kopf_sees_every_model_and_writes_none() -> None:
    plane, models = Plane(), hostile_models()
    plane.listed = list(models.values())
    async with watched(plane) as seen:

        def names_seen() -> set[str]:
            return {key.name for key in seen.cache.models()}

        await until(lambda: names_seen() == set(models))
        for name, text in models.items():
            plane.tell("DELETED", text.replace('"resourceVersion": "1"', '"resourceVersion": "6"'))
            plane.tell("ADDED", text.replace(name, f"{name}-2"))
        await until(lambda: names_seen() == {f"{name}-2" for name in models})
    assert plane.written == []


async def test_models_that_are_large_when_parsed_take_no_memory() -> None:
    plane, params = Plane(), f"[{'[],' * 100_000}[]]"  # 8 MiB where it is parsed
    processor = {"name": "x", "factory": "a.b:C", "params": {"p": "@params"}}
    for number in range(6):
        one = item(f"m{number}", spec={"logitsProcessors": [processor]})
        plane.listed.append(text_of(one, params=params))
    tracemalloc.start()
    try:
        async with watched(plane) as seen:
            before, _ = tracemalloc.get_traced_memory()
            await until(lambda: len(seen.cache.models()) == 6, timeout_s=300)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 40 * MIB  # some copies of a page as text, and a model as it is parsed


@contextlib.asynccontextmanager
async def stands() -> AsyncIterator[list[float]]:
    """Tell for how long nothing else got its turn, in seconds of this thread's own work."""
    found = [0.0]

    async def look() -> None:
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(0.02)
            found.append(time.thread_time() - before_s)

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()


LISTS = f"[{'[],' * 390_000}[]]"  # 1.2 MB, as many lists as an object may have
TOWERS = f"[{(90 * '[' + 90 * ']' + ',') * 6500}[]]"


@pytest.mark.parametrize("params", [LISTS, TOWERS], ids=["lists", "towers"])
async def test_a_page_of_models_that_are_dear_to_parse_stops_nobody(params: str) -> None:
    """Twenty took 20 s of the event loop, and a Lease is lost after ten."""
    plane = Plane()
    for number in range(2):
        processor = {"name": "x", "factory": "a.b:C", "params": {"p": "@params"}}
        one = item(f"m{number}", spec={"logitsProcessors": [processor]})
        plane.listed.append(text_of(one, params=params))
    async with stands() as found, watched(plane) as seen:
        await until(lambda: len(seen.cache.models()) == 2, timeout_s=120)
    assert max(found) < 1


async def test_revisions_that_are_dear_to_parse_cost_their_own_model_alone() -> None:
    """They are listed whole: thirty of a tenant's took a gigabyte and ten seconds."""
    one = text_of(item("r", data={"template": "@data"}), data=LISTS)
    plane = Plane(kinds.REVISION)
    plane.answers = [(200, f'{{"items":[{",".join([one] * 6)}]}}')]
    async with plane.served() as api, stands() as found:
        with pytest.raises(ObjectInvalid, match="too large"):
            await api.read(kinds.REVISION.path())
    assert max(found) < 1


def test_params_that_were_left_out_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params: Any = {}
    for _ in range(MAX_PARAMS_DEPTH):
        params = {"a": params}
    raw = changed(minimal(), logitsProcessors=[{"name": "x", "factory": "a.b:C", "params": params}])
    assert main(["validate", "-f", write(tmp_path, raw)]) == 2
    assert "params: is larger than 32768 bytes of JSON, or nested deeper" in capsys.readouterr().err
    seen = thinned(raw)
    [processor] = seen["spec"]["logitsProcessors"]
    assert processor["params"] == LEFT_OUT
    [problem] = check(parse(seen))
    assert "nested deeper than 32 levels" in problem.message

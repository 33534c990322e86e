"""Named grammars in the operator: merged into one ConfigMap, followed, and reported."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract import grammar_files
from guided_contract.status import GrammarStatus, PodStatus
from guided_operator.api import parse
from guided_operator.builders.grammars import merge
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.observe import Observer
from guided_operator.reconcile.report import make_status
from guided_operator.watch import grammar_sources
from guided_operator.watch.cache import Cache
from guided_operator.watch.informers import Informers
from guided_operator.watch.sidecar_status import SidecarReader
from support.memory_api import MemoryApi
from support.observed import UID, applied, model, planned, seen, situation, telling

Object = dict[str, Any]
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def grammar(name: str, kind: str = "Regex", config_map: str = "texts", key: str = "") -> Object:
    return {"name": name, "kind": kind, "configMapKeyRef": {"name": config_map, "key": key or name}}


def named(*grammars: Object) -> Object:
    return model(guidedDecoding={"grammars": list(grammars)})


def files(raw: Object, sources: Any, before: Any = ()) -> tuple[dict[str, str], dict[str, str]]:
    return merge(parse(raw), sources, dict(before))


class TestMerge:
    def test_each_text_becomes_a_file_of_its_name_and_kind(self) -> None:
        raw = named(grammar("a", "JSONSchema", key="a.json"), grammar("b", "EBNF", "more"))
        data, faults = files(raw, {"texts": {"a.json": "{}", "unused": "x"}, "more": {"b": "root ::= x"}})
        assert data == {"a.JSONSchema": "{}", "b.EBNF": "root ::= x"}
        assert not faults

    @pytest.mark.parametrize(
        ("sources", "fault"),
        [
            ({"texts": None}, "there is no ConfigMap texts"),
            ({}, "there is no ConfigMap texts"),
            ({"texts": {"b": "x"}}, "ConfigMap texts has no key a"),
        ],
    )
    def test_a_text_that_cannot_be_had_leaves_the_one_before_or_the_reason(
        self, sources: Any, fault: str
    ) -> None:
        assert files(named(grammar("a")), sources) == ({"a.Absent": fault}, {"a": fault})
        before = {"a.Regex": "old", "gone.Regex": "x"}
        assert files(named(grammar("a")), sources, before) == ({"a.Regex": "old"}, {"a": fault})
        before = {"a.EBNF": "of another kind"}
        assert files(named(grammar("a")), sources, before) == ({"a.Absent": fault}, {"a": fault})

    def test_what_has_no_room_is_named_and_the_rest_is_served(self) -> None:
        half = "x" * (grammar_files.MAX_BYTES // 2)
        texts = {"texts": {"a": half, "b": half, "c": "y"}}
        data, faults = files(named(grammar("a"), grammar("b"), grammar("c")), texts)
        assert set(data) == {"a.Regex", "b.Absent", "c.Regex"}
        assert "1 MiB" in faults["b"]
        size = sum(len(name) + len(text) for name, text in data.items())
        assert size <= grammar_files.MAX_BYTES
        data, _ = files(named(grammar("a"), grammar("b"), grammar("c")), texts, {"b.Regex": "small"})
        assert data["b.Regex"] == "small"


class TestReport:
    def test_a_text_that_is_not_there_is_a_condition_with_the_name(self) -> None:
        found = situation(applied(seen(named(grammar("card")))))
        condition = decide(found)["GuidedDecoding"]
        assert (condition.status, condition.reason) == ("False", "GrammarsPending")
        assert condition.message == "card: there is no ConfigMap texts"
        assert make_status(found, NOW).grammars.pending == 1

    def test_pods_tell_and_the_worst_counts(self) -> None:
        good = [GrammarStatus(name=name, state="Ready") for name in "ab"]
        stale = GrammarStatus(name="b", state="Stale", reason="Unclosed")
        bad = [stale, GrammarStatus(name="nobody-s", state="Failed")]
        pages = (PodStatus(ready=True, grammars=grammars) for grammars in (good, bad))
        observed = telling(*pages, raw=named(grammar("a"), grammar("b"))).observed
        found = situation(dataclasses.replace(observed, sources={"texts": {"a": "1", "b": "2"}}))
        condition = decide(found)["GuidedDecoding"]
        assert (condition.status, condition.reason) == ("False", "GrammarsPending")
        assert "pod m-1: grammar b is Stale: Unclosed" in condition.message
        counts = make_status(found, NOW).grammars.model_dump()
        assert counts == {"ready": 1, "pending": 0, "stale": 1, "failed": 0}


class TestSources:
    @pytest.mark.parametrize(("uid", "is_told"), [(UID, True), ("another", False)])
    async def test_texts_that_pods_have_are_those_of_our_own_configmap(
        self, uid: str, *, is_told: bool
    ) -> None:
        async def no_page(_: str) -> bytes:
            raise AssertionError("there are no pods")

        api, cache, raw = MemoryApi(), Cache(lambda _key: None), named(grammar("a"))
        raw["metadata"]["resourceVersion"] = "1"
        api.objects[kinds.model_path("ns", "m")] = raw
        cache.take(kinds.MODEL, None, raw)
        [ours] = [each for each in planned(seen(raw)).children if each["metadata"]["name"] == "m-grammars"]
        ours["metadata"]["ownerReferences"][0]["uid"] = uid
        api.objects[kinds.CONFIG_MAP.path("ns", "m-grammars")] = {**ours, "data": {"a.Regex": "x"}}
        sidecars = SidecarReader(no_page, lambda: 0.0)
        observer = Observer(cache, Informers(api, cache, []), sidecars, api, lambda: 0.0)
        observed = await observer.observe(Key("ns", "m"))
        assert observed is not None
        assert ("m-grammars" in observed.sources) == is_told

    async def test_no_more_is_kept_than_pods_could_mount(self) -> None:
        """Found by an attack: four models that name 64 ConfigMaps of 1 MB each took the operator 617 MiB."""
        api = MemoryApi()
        most = grammar_files.MAX_BYTES
        data = {"a": (most // 2) * "<", "b": most * "<"}
        for number in range(8):
            api.objects[kinds.CONFIG_MAP.path("ns", f"texts{number}")] = {"metadata": {}, "data": data}
        found = await grammar_sources.read(api, "ns", {f"texts{number}": {"a"} for number in range(9)})
        assert found.pop("texts8") is None, "it is not there"
        texts = [found[name]["a"] for name in sorted(found)]  # type: ignore[index]
        assert [text is not None for text in texts] == [True, True, *6 * [False]]
        assert all(data is not None and data.keys() == {"a"} for data in found.values())
        grammars = [grammar(f"g{number}", config_map=f"texts{number}", key="a") for number in range(8)]
        _, faults = files(named(*grammars), found)
        assert faults.keys() >= {f"g{number}" for number in range(2, 8)}
        assert "at most 1 MiB" in faults["g7"]

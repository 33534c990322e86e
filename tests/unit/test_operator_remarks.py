"""What falls back, as whoever writes a resource hears of it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_contract.status import PodStatus
from guided_operator.api.combinations import facts_of, remarks
from guided_operator.cli.command_line import main
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.watch.sidecar_status import Page
from support.manifests import changed, guided_model, minimal
from support.observed import applied, model, pod, revision_of, seen, situation

HEAD = {
    "method": "Eagle3",
    "numTokens": 3,
    "draftModel": {"uri": "hf://o/head"},
    "draftSampling": "Probabilistic",
}
NGRAM = {"method": "NGram", "numTokens": 3}
BLOCK = {"method": "DSpark", "numTokens": 3, "verification": "Block"}
V1 = [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]


BEHIND = {"parallelism": {"pipeline": 2, "tensor": 1}}


def test_what_falls_back_is_said_where_a_manifest_is_checked_and_by_the_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {**BEHIND, "engine__env": V1}
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump(changed(minimal(), **fields)))
    assert main(["validate", "-f", str(file)]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("is valid\n")
    told = "spec.parallelism.pipeline: falls back: Model Runner V1 schedules pipeline stages synchronously"
    assert told in said.err
    engine = {**minimal()["spec"]["engine"], "env": V1}
    found = decide(situation(applied(seen(model(**BEHIND, engine=engine)))))["Compatible"]
    assert (found.status, found.reason) == ("True", "Supported")
    assert found.message.startswith(told)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"engine__accelerator": {"type": "None"}},
        {"speculative": HEAD | {"method": "DraftModel"}},
    ],
)
def test_of_what_neither_falls_back_nor_is_refused_nothing_is_told(fields: dict[str, Any]) -> None:
    assert [*remarks(facts_of(guided_model(**fields).spec))] == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"speculative": NGRAM | {"method": "MTP"}}, ["falls back on Model Runner V1"]),
        # That runner has no DSpark, so it will not be the one.
        ({"speculative": BLOCK}, []),
    ],
)
def test_what_only_one_of_two_model_runners_does_is_told_of_it(
    fields: dict[str, Any], told: list[str]
) -> None:
    gm = guided_model(engine__accelerator={"resource": "amd.com/gpu"}, **BEHIND, **fields)
    assert [each.split(": ")[1] for each in remarks(facts_of(gm.spec)) if "spec." in each] == told


@pytest.mark.parametrize(
    ("fields", "scheduling"),
    [
        (BEHIND, "Sync"),
        ({"engine": {**minimal()["spec"]["engine"], "args": ["--enable-dbo"]}}, "Async"),
    ],
)
def test_what_pods_say_of_their_model_runner_counts(fields: dict[str, Any], scheduling: Any) -> None:
    raw = model(**fields)
    here = pod("m-0", revision_of(raw))
    page = Page(PodStatus(ready=True, versions={"modelRunner": "V1"}, scheduling=scheduling))
    told = situation(dataclasses.replace(applied(seen(raw)), pods=(here,), pages={here.uid: page}))
    assert told.facts is not None
    assert any("falls back" in each for each in remarks(told.facts))

"""What goes with what, as whoever writes a resource hears of it."""

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from guided_contract.status import PodStatus
from guided_operator.api.combinations import facts_of, remarks
from guided_operator.cli.command_line import main
from guided_operator.policy.spec_checks import check
from guided_operator.reconcile.conditions.chains import decide
from support.manifests import as_text, changed, guided_model, minimal
from support.observed import applied, model, seen, situation, telling

ADAPTIVE = {"method": "MTP", "numTokens": 1, "verification": "Adaptive"}
ADAPTERS = {"adapters": [{"name": "a", "uri": "pvc://adapters/a"}]}
CPU = {"engine__accelerator": {"type": "None"}}
V2 = [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}]
V1 = [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]


def refusals(args: list[str], **fields: Any) -> list[str]:
    return [each.message for each in check(guided_model(engine__args=args, **fields))]


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ([], ""),
        (["--enforce_eager"], "remove the argument"),
        (["--enforce-eager", "--no-enforce-eager"], ""),  # the last word counts
        (["--enforce-eag"], "remove the argument"),  # vLLM completes it
        (["--no-enforce-eag"], ""),
        (["--max-num-se=8", "--max-num-active=9"], "must not exceed"),
        (["--enable-batch-sharded-sampling"], "nothing to shard on one rank"),
        (["--compilation-config.cudagraph_mode", "PIECEWISE"], "remove the argument"),
        (["--compilation-config.cudagraph_mode=FULL"], ""),
        (["--compilation-config.mode=1", "--compilation-config.cudagraph_mode=FULL"], "remove the argument"),
        (["--optimization-level=0", "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY"], ""),
        # Whole numbers that vLLM takes however they are written.
        (["--optimization-level=1.0"], "remove the argument"),
        (["--optimization-level=2.0"], ""),
        (["--kv-sharing-fast-prefill"], "fast prefill"),
        # Limits of a step.
        (["--max-num-seqs=8", "--max-num-active-seqs=9"], "must not exceed"),
        (["--max-num-seqs=8", "--max-num-active-seqs=8"], ""),
        (["--max-num-active-seqs=9"], ""),
        (["--max-num-seqs=8", "--max-num-batched-tokens=7"], "must be at least"),
        (["--max-num-batched-tokens=7"], ""),
    ],
)
def test_arguments_count(args: list[str], refused: str) -> None:
    assert [refused in each for each in refusals(args, speculative=ADAPTIVE)] == [True] * bool(refused)


@pytest.mark.parametrize(
    ("drafts", "args", "fields", "is_refused"),
    [
        # Adapters want room for what a full batch verifies; vLLM's defaults have it on a B200.
        (8, [], {"lora": ADAPTERS}, False),
        (16, [], {"lora": ADAPTERS}, True),
        (16, ["--performance-mode=throughput"], {"lora": ADAPTERS}, False),
        (3, ["--max-num-seqs=64", "--max-num-batched-tokens=255"], {"lora": ADAPTERS}, True),
        (3, ["--max-num-seqs", "64", "--max-num-batched-tokens", "256"], {"lora": ADAPTERS}, False),
        (1, ["--max-num-batched-tokens=8k"], {"lora": ADAPTERS}, False),
        (15, [], {"lora": ADAPTERS, **CPU}, False),
        (16, [], {"lora": ADAPTERS, **CPU, "parallelism": {"tensor": 2}}, True),
        (16, [], {}, False),
        # By load there has to be something to choose from.
        ("Auto", ["--max-num-seqs=1"], {}, True),
        ("Auto", ["--max-num-seqs=2"], {}, False),
        ("Auto", ["--max-num-batched-tokens=1"], {}, True),
    ],
)
def test_drafts_want_room(drafts: Any, args: list[str], fields: dict[str, Any], *, is_refused: bool) -> None:
    asked = {"method": "NGram", "numTokens": drafts}
    assert len(refusals(args, speculative=asked, **fields)) == is_refused


@pytest.mark.parametrize(
    ("word", "is_refused"),
    [("--max-num-seqs=2", False), ("--max-num-seqs=1", True), ("--max-logprobs=-1", True)],
)
def test_rows_to_shard_have_bounds(word: str, *, is_refused: bool) -> None:
    assert len(refusals(["--enable-batch-sharded-sampling", word], parallelism__tensor=2)) == is_refused


@pytest.mark.parametrize(
    ("fields", "fact", "value"),
    [
        ({}, "runner", "V2"),
        ({"engine__env": V1}, "runner", "V1"),
        (CPU, "runner", ""),  # whether its build has a Triton decides
        ({"engine__args": ["--enable-dbo"]}, "runner", "V1"),
        ({"engine__args": ["--enable-dbo"], "engine__env": V2}, "runner", "V2"),
        ({"engine__accelerator": {"resource": "amd.com/gpu"}}, "runner", ""),
        # The last word says whether a batch is overlapped.
        ({"engine__args": ["--enable-dbo", "--no-enable-dbo"]}, "dbo", False),
        ({"engine__args": ["--enable-dbo", "--disable-dbo"]}, "dbo", False),  # since vLLM 0.33
        ({"engine__args": ["--ubatch_size", "2"]}, "dbo", True),
        ({"engine__args": ["--ubatch-size", "2", "--ubatch-size=0"]}, "dbo", False),
        ({"engine__args": ["--ubatch-size=0", "--enable-dbo"]}, "dbo", True),
        # On a CPU vLLM leaves out one of both options alone.
        ({"engine__args": ["--enable-dbo"], **CPU}, "dbo", True),
        ({"engine__args": ["--ubatch-size=2"], **CPU}, "dbo", False),
    ],
)
def test_model_runner_and_overlap_are_those_that_are_asked_for_or_that_vllm_takes(
    fields: dict[str, Any], fact: str, value: object
) -> None:
    assert getattr(facts_of(guided_model(**fields).spec), fact) == value


@pytest.mark.parametrize("value", ["", "2", "true", None])
def test_a_model_runner_that_the_table_cannot_read_is_refused(value: str | None) -> None:
    """vLLM ends at "" and "true", and takes V2 for "2", of which no row would have held."""
    source = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}} if value is None else {"value": value}
    gm = guided_model(engine__env=[{"name": "VLLM_USE_V2_MODEL_RUNNER", **source}])
    assert [each.field for each in check(gm)] == ["spec.engine.env[0]"]


DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "hf://o/head"}}
NGRAM = {"method": "NGram", "numTokens": 3}
BLOCK = {"method": "DSpark", "numTokens": 3, "verification": "Block"}


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        (["--enable-batch-sharded-sampling"], {"parallelism__tensor": 2, "speculative": ADAPTIVE}),
        ([], {"engine__env": V1, "speculative": NGRAM | {"disableAbove": 9}}),
        ([], {"engine__env": V1, "speculative": {"method": "NGram", "numTokens": "Auto"}}),
    ],
)
def test_what_a_later_vllm_would_take_is_refused_with_how_to_say_so(
    args: list[str], fields: dict[str, Any]
) -> None:
    fields = {"engine__image": "registry.test/serve:2026-11", **fields}
    [told] = refusals(args, **fields)
    assert told.endswith(", or set engine.version if the image has vLLM 0.33 or later")
    [known] = refusals(args, engine__version="0.32.1", **fields)
    assert "engine.version" not in known
    assert refusals(args, engine__version="0.33.1", **fields) == []


@pytest.mark.parametrize("suffix", ["", "-cu130", "-x86_64", f"@sha256:{64 * 'a'}"])
@pytest.mark.parametrize(
    "version",
    [
        *("0.31.0", "0.33.1", "0.32.0.post1", "0.33.0post1", "0.34.0"),
        *("0.33.0rc1", "0.33.0-rc1", "0.33.0.rc1", "0.33.0a1", "0.33.0.dev12", "0.33.0-dev1"),
    ],
)
def test_an_images_tag_chooses_the_rules_if_it_is_a_releases(version: str, suffix: str) -> None:
    known = Version(version)
    read = facts_of(guided_model(engine__image=f"vllm/vllm-openai:v{version}{suffix}").spec)
    assert read.minor == ("" if known.is_prerelease else f"{known.major}.{known.minor}")


BEHIND = {"parallelism": {"pipeline": 2, "tensor": 1}}


def test_what_falls_back_is_said_where_a_manifest_is_checked_and_by_the_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {**BEHIND, "engine__env": V1}
    file = tmp_path / "m.yaml"
    file.write_text(as_text(changed(minimal(), **fields)))
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
        {"speculative": DRAFT | {"draftSampling": "Probabilistic"}},
    ],
)
def test_of_what_neither_falls_back_nor_is_refused_nothing_is_told(fields: dict[str, Any]) -> None:
    assert [*remarks(facts_of(guided_model(**fields).spec))] == []


def test_what_only_one_of_two_model_runners_does_is_told_of_it() -> None:
    on_amd = {**BEHIND, "engine__accelerator": {"resource": "amd.com/gpu"}}
    [told] = remarks(facts_of(guided_model(**on_amd, speculative=NGRAM | {"method": "MTP"}).spec))
    assert "falls back on Model Runner V1: " in told
    # That runner has no DSpark, so it will not be the one.
    assert [*remarks(facts_of(guided_model(**on_amd, speculative=BLOCK).spec))] == []


@pytest.mark.parametrize(
    ("fields", "scheduling"),
    [
        (BEHIND, "Sync"),
        ({"engine": {**minimal()["spec"]["engine"], "args": ["--enable-dbo"]}}, "Async"),
    ],
)
def test_what_pods_say_of_their_model_runner_counts(fields: dict[str, Any], scheduling: Any) -> None:
    versions = {"modelRunner": "V1", "vllm": "0.33.0+cu130"}
    page = PodStatus(ready=True, versions=versions, scheduling=scheduling)
    told = telling(page, raw=model(**fields))
    assert told.facts is not None
    assert (told.facts.runner, told.facts.minor) == ("V1", "0.33")
    assert any("falls back" in each for each in remarks(told.facts))

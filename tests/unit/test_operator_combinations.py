"""What goes with what, as whoever writes a resource hears of it."""

from typing import Any

import pytest

from guided_operator.api.combinations import facts_of
from guided_operator.policy.spec_checks import check
from support.manifests import guided_model

HEAD = {
    "method": "Eagle3",
    "numTokens": 3,
    "draftModel": {"uri": "hf://o/head"},
    "draftSampling": "Probabilistic",
}
V2 = [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}]
ADAPTIVE = {"method": "MTP", "numTokens": 1, "verification": "Adaptive"}


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ([], ""),
        (["--enforce-eager"], "remove the argument"),
        (["--enforce_eager"], "remove the argument"),
        (["--enforce-eager", "--no-enforce-eager"], ""),
        (["--enable-batch-sharded-sampling"], "nothing to shard on one rank"),
        (["--compilation-config.cudagraph_mode=none"], "remove the argument"),
        (["--compilation-config.cudagraph_mode", "PIECEWISE"], "remove the argument"),
        (["--compilation-config.cudagraph_mode=FULL"], ""),
        (["--optimization-level=1"], "remove the argument"),
        (["--compilation-config.mode=1", "--compilation-config.cudagraph_mode=FULL"], "remove the argument"),
        (["--optimization-level=0", "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY"], ""),
        # Whole numbers that vLLM takes however they are written.
        (["--optimization-level=1.0"], "remove the argument"),
        (["--compilation-config.mode=1.0"], "remove the argument"),
        (["--compilation-config.cudagraph_mode=01"], "remove the argument"),
        (["--optimization-level=2.0"], ""),
        (["--kv-sharing-fast-prefill"], "fast prefill"),
        (["--kv-sharing-fast-prefill", "--no-kv-sharing-fast-prefill"], ""),
    ],
)
def test_arguments_count(args: list[str], refused: str) -> None:
    problems = check(guided_model(speculative=ADAPTIVE, engine__args=args))
    assert [refused in each.message for each in problems] == [True] * bool(refused)


@pytest.mark.parametrize(
    ("most", "args", "refused"),
    [
        (8, ["--max-num-active-seqs=9"], "--max-num-active-seqs must not exceed"),
        (8, ["--max-num-active-seqs=8"], ""),
        (None, ["--max-num-active-seqs=9"], ""),
        (8, ["--max-num-batched-tokens=7"], "--max-num-batched-tokens must be at least"),
        (8, ["--max-num-batched-tokens=8"], ""),
        (None, ["--max-num-batched-tokens=7"], ""),
    ],
)
def test_limits_of_a_step_go_together(most: int | None, args: list[str], refused: str) -> None:
    most_words = [] if most is None else [f"--max-num-seqs={most}"]
    problems = check(guided_model(engine__args=[*most_words, *args]))
    assert [refused in each.message for each in problems] == [True] * bool(refused)
    assert {each.field for each in problems} <= {"spec.engine.args"}


def test_the_model_runner_is_the_one_that_is_asked_for_or_that_vllm_takes() -> None:
    def runner(**fields: Any) -> str:
        return facts_of(guided_model(**fields).spec).runner

    chosen = [[{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": value}] for value in "01"]
    assert runner() == "V2"
    assert [runner(engine__env=env) for env in chosen] == ["V1", "V2"]
    assert runner(engine__accelerator={"type": "None"}) == "", "whether its build has a Triton decides"
    assert runner(engine__args=["--enable-dbo"]) == "V1"
    assert runner(engine__args=["--enable-dbo"], engine__env=chosen[1]) == "V2"
    assert runner(engine__args=["--enable-dbo"], engine__accelerator={"type": "None"}) == ""
    assert runner(engine__accelerator={"resource": "amd.com/gpu"}) == ""


@pytest.mark.parametrize("value", ["", "2", "true", None])
def test_a_model_runner_that_the_table_cannot_read_is_refused(value: str | None) -> None:
    """vLLM ends at "" and "true", and takes V2 for "2", of which no row would have held."""
    source = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}} if value is None else {"value": value}
    gm = guided_model(engine__env=[{"name": "VLLM_USE_V2_MODEL_RUNNER", **source}])
    assert [each.field for each in check(gm)] == ["spec.engine.env[0]"]


@pytest.mark.parametrize(
    ("args", "overlaps"),
    [
        (["--enable-dbo"], True),
        (["--enable-dbo", "--no-enable-dbo"], False),
        (["--ubatch-size=2"], True),
        (["--ubatch_size", "2"], True),
        (["--ubatch-size=1"], False),
        (["--ubatch-size", "2", "--ubatch-size=0"], False),
        (["--ubatch-size=0", "--enable-dbo"], True),
    ],
)
def test_the_last_word_says_whether_a_batch_is_overlapped(args: list[str], *, overlaps: bool) -> None:
    assert facts_of(guided_model(engine__args=args).spec).dbo is overlaps


@pytest.mark.parametrize(
    ("drafts", "fields", "crowded"),
    [
        (3, {}, False),
        (8, {}, False),  # vLLM's defaults have room on a B200, on an H100 they have not
        (16, {}, True),
        (16, {"engine__args": ["--performance-mode=throughput"]}, False),
        (3, {"engine__args": ["--max-num-seqs=64", "--max-num-batched-tokens=255"]}, True),
        (3, {"engine__args": ["--max-num-seqs", "64", "--max-num-batched-tokens", "256"]}, False),
        (1, {"engine__args": ["--max-num-batched-tokens=511"]}, True),
        (1, {"engine__args": ["--max-num-batched-tokens=8k"]}, False),
        (15, {"engine__accelerator": {"type": "None"}}, False),
        (16, {"engine__accelerator": {"type": "None"}, "parallelism": {"tensor": 2}}, True),
    ],
)
def test_adapters_want_room_for_what_a_full_batch_verifies(
    drafts: int, fields: dict[str, Any], *, crowded: bool
) -> None:
    adapters = {"adapters": [{"name": "a", "uri": "pvc://adapters/a"}]}
    asked = {"method": "NGram", "numTokens": drafts}
    problems = check(guided_model(lora=adapters, speculative=asked, **fields))
    assert [each.field for each in problems] == ["spec.speculative.numTokens"] * crowded
    assert check(guided_model(speculative=asked, **fields)) == []


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([], False),
        (["--max-num-seqs=2"], False),
        (["--max-num-seqs=1"], True),
        (["--max-logprobs", "-1"], True),
    ],
)
def test_rows_to_shard_have_bounds(words: list[str], *, refused: bool) -> None:
    args = ["--enable-batch-sharded-sampling", *words]
    problems = check(guided_model(engine__args=args, parallelism__tensor=2))
    assert [each.field for each in problems] == ["spec.engine.args"] * refused


def test_on_a_cpu_vllm_leaves_out_one_of_both_options_alone() -> None:
    on_cpu = {"engine__accelerator": {"type": "None"}}
    assert facts_of(guided_model(engine__args=["--enable-dbo"], **on_cpu).spec).dbo is True
    assert facts_of(guided_model(engine__args=["--ubatch-size=2"], **on_cpu).spec).dbo is False


@pytest.mark.parametrize(
    ("engine", "refused"),
    [
        ({"engine__args": ["--max-num-seqs=1"]}, True),
        ({"engine__args": ["--max-num-seqs=2"]}, False),
        ({"engine__args": ["--max-num-batched-tokens=1"]}, True),
        ({"engine__args": ["--max-num-batched-tokens=100"]}, False),
        ({"engine__args": ["--max-num-batched-tokens", "8k"]}, False),
    ],
)
def test_where_auto_has_nothing_to_choose_from_it_is_refused(
    engine: dict[str, Any], *, refused: bool
) -> None:
    problems = check(guided_model(speculative={"method": "NGram", "numTokens": "Auto"}, **engine))
    assert ["with one sequence at a time" in each.message for each in problems] == [True] * refused

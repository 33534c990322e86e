"""The table of what goes with what, against vLLM, which makes its own configuration for each row.

On a CPU, and as on a CUDA GPU, without an engine (support.vllm_configurations). What vLLM is to refuse, it
refuses in the row's words; what we refuse by ourselves, it takes; and what is taken resolves as the row says,
without a warning that no row has.
"""

import ast
import functools
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

from guided_contract.combinations.row import ALL, METHODS, Facts, Row
from guided_contract.combinations.table import ROWS, refusals, that_hold
from guided_engine.processors.interface import DenseFactory
from guided_operator.api.combinations import facts_of
from guided_operator.policy.spec_checks import check
from support import matrix
from support.combinations import Example, examples, numbers, resource, runner
from support.manifests import guided_model

# What vLLM and torch warn of when imported is theirs.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DEVICES = ("CPU", "CUDA")
HERE = ("CEL", "Operator")
UNSAID = "GPUs that are not NVIDIA's"  # the row that says alone that nothing ran there


def answers(device: str, models: Path) -> dict[str, Any]:
    """Return what vLLM says to each example of a device; for the CPU with Triton's interpreter."""
    here = (each for row in ROWS for each in examples(row) if each.facts.device == device)
    asked = {each.name: each.asked(models) for each in here}
    path = os.pathsep.join([str(ROOT / "tests" / "support" / "v2cpu"), *sys.path])
    interprets = {"VLLM_USE_V2_MODEL_RUNNER": "1"} if device == "CPU" else {}
    done = subprocess.run(
        [sys.executable, "-m", "support.vllm_configurations", device],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "VLLM_CACHE_ROOT": str(models / "cache"), **interprets},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    models = tmp_path_factory.mktemp("models")
    return {name: one for device in DEVICES for name, one in answers(device, models).items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_vllm_says_the_same(told: dict[str, Any], row: Row) -> None:
    asked = [*examples(row)]
    for example in asked:
        _compare(example, told[example.name])
    # What cannot be made here at least says what it says.
    assert asked or row.name == UNSAID or row.words
    assert asked or any(row.words in each for each in _texts_of_vllm()), row.words


@functools.cache
def _texts_of_vllm() -> list[str]:
    from vllm.config import vllm

    nodes = ast.walk(ast.parse(inspect.getsource(vllm)))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _compare(example: Example, found: dict[str, Any]) -> None:
    row = example.row
    said, *warnings = (re.sub(r"\s+", " ", each) for each in (found["refusal"], *found["warnings"]))
    if row.verdict == "Refused" and "vLLM" in row.decided_by:
        assert row.words, "what vLLM decides has its words"
        assert row.words in said, example.name
        return
    assert said == "", example.name
    assert not row.words or any(row.words in each for each in warnings), example.name
    facts = msgspec.structs.replace(example.facts, runner=example.facts.runner or runner(example.facts))
    rows = [*that_hold(facts)]
    known = [each.words for each in rows if each.words]
    assert [each for each in warnings if not any(words in each for words in known)] == [], example.name
    assert found["runner"] == facts.runner, example.name
    # What falls back is said by a row of its own, beside the one of what it falls back from.
    says = [each for each in rows if each.verdict != "Refused" and each.is_async is not None]
    schedulings = {each.is_async for each in says if each.verdict == "FallsBack"} or {
        each.is_async for each in says
    }
    assert {found["is_async"]} == ({False} if facts.scheduling == "Sync" else schedulings), example.name
    schedule = found["schedule"]
    assert schedule == numbers(facts, len(schedule or ())), example.name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_operator_says_the_same_of_a_resource(tmp_path: Path, row: Row) -> None:
    for example in examples(row):
        problems = {(each.field, each.message) for each in check(resource(example.facts, tmp_path))}
        if row.verdict != "Refused":
            assert problems == set(), f"{example.name}: another row refuses it"
        elif set(HERE) & {*row.decided_by}:
            assert (f"spec.{row.field}", row.message) in problems, example.name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_resource_is_read_as_the_facts_that_it_was_made_of(tmp_path: Path, row: Row) -> None:
    unknown = {"dense", "undrafted", "foreign", "multimodal", "hybrid", "reasoning_plugin"}
    for example in examples(row):
        read = facts_of(resource(example.facts, tmp_path).spec)
        for name in {*row.when, "device"} - unknown:
            assert getattr(read, name) == getattr(example.facts, name), f"{example.name}: {name}"


@pytest.mark.parametrize("size", range(4))
def test_vllm_overlaps_batches_by_the_size_that_counts_here(size: int) -> None:
    from vllm.config.parallel import ParallelConfig

    told = SimpleNamespace(enable_dbo=False, ubatch_size=size)
    gm = guided_model(engine__args=[f"--ubatch-size={size}"])
    assert facts_of(gm.spec).dbo is ParallelConfig.use_ubatching.fget(told)


def test_model_runner_v1_ends_where_the_number_of_ngrams_drafts_changes() -> None:
    from vllm.v1.spec_decode.ngram_proposer_gpu import NgramProposerGPU

    with pytest.raises(AssertionError):
        NgramProposerGPU.propose(SimpleNamespace(k=3), 0, *[None] * 4)


def test_model_runner_v2_overlaps_no_batches_of_what_the_rows_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.config.vllm import CUDAGraphMode, VllmConfig

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    told = SimpleNamespace(
        lora_config={},
        speculative_config={},
        model_config=SimpleNamespace(is_multimodal_model=True, is_hybrid=True),
        parallel_config=SimpleNamespace(pipeline_parallel_size=2, decode_context_parallel_size=2),
        compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode.PIECEWISE),
        is_mm_encoder_only=False,  # such a model is multimodal
    )
    rows = (row.words for row in ROWS if row.when.items() >= {"dbo": (True,), "runner": ("V2",)}.items())
    assert sorted(VllmConfig._get_dbo_unsupported_features(told)) == sorted(rows)


def test_rows_are_told_apart_and_whole() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len({row.message for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert (row.verdict == "Refused") <= bool(row.instead and row.field), row.name
        assert (row.verdict == "Supported") <= bool(row.test), row.name
        assert (row.verdict == "NotRun") <= (not row.test), row.name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize("method", METHODS)
def test_each_method_on_each_runner_has_a_row_that_names_it_or_a_refusal(
    method: Any, runner: Any, device: Any
) -> None:
    for scheduling in get_args(Facts.__annotations__["scheduling"]):
        facts = Facts(method=method, runner=runner, device=device, scheduling=scheduling)
        assert any(
            row.verdict == "Refused" or row.when.get("method", ALL) != ALL for row in that_hold(facts)
        ), facts


def test_what_ran_a_row_is_there() -> None:
    cells = {cell.name for cell in matrix.FULL}
    for row in ROWS:
        if row.test:
            file, _, cell = row.test.partition(" ")
            assert (ROOT / file).is_file(), row.name
            assert not cell or cell in cells, row.name


def test_a_rank_reads_what_its_rows_ask_for_and_no_more() -> None:
    """Each fact read differs from what is not known; what is not played of vLLM's configuration cannot be."""
    from guided_engine.compat.combination_check import facts_of

    config = SimpleNamespace(speculative_config=_drafts(adaptive=True), use_v2_model_runner=False)
    found, unread = facts_of(config, [_Undrafted]), Facts()
    read = {name for name in Facts.__struct_fields__ if getattr(found, name) != getattr(unread, name)}
    assert read == {name for row in ROWS if "Plugin" in row.decided_by for name in row.when}


def test_a_rank_refuses_by_vllms_own_configuration() -> None:
    from guided_engine.compat.combination_check import RefusedError, check, facts_of

    config = SimpleNamespace(speculative_config=_drafts(), use_v2_model_runner=False)
    found = facts_of(config, [DenseFactory])
    assert (found.method, found.device, found.runner) == ("NGram", "CPU", "V1")
    assert (found.block, found.dense, found.undrafted) == (True, True, False)
    assert [row.name for row in refusals(found, "Plugin")] == ["verification in blocks on V1"]
    with pytest.raises(RefusedError, match="use Fixed, or Model Runner V2"):
        check(config, [])
    config.speculative_config.rejection_sample_method = "standard"
    check(config, [DenseFactory])
    with pytest.raises(RefusedError, match="use Model Runner V2, or leave out speculation"):
        check(config, [DenseFactory, _Undrafted])
    config.use_v2_model_runner = True
    check(config, [_Undrafted])


class _Undrafted(DenseFactory[Any]):
    supports_speculation = False


def _drafts(*, adaptive: bool = False) -> SimpleNamespace:
    """Return vLLM's configuration of speculation, as far as a rank reads it."""
    return SimpleNamespace(
        method="ngram", rejection_sample_method="block", enable_adaptive_verification=adaptive
    )

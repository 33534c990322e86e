"""The table of what goes with what, against vLLM, which makes its own configuration for each row.

On a CPU, and as on a CUDA GPU, without an engine (support.vllm_configurations). What vLLM is to refuse, it
refuses in words that are known; what we refuse by ourselves, it takes; and what is taken, all that ran
among it, resolves as the row says, without a warning that is not known.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from devtools.combinations_page import RAN, Ran

from guided_contract.combinations.row import Facts, Row, asked
from guided_contract.combinations.table import ROWS, that_hold
from guided_engine.processors.interface import DenseFactory
from guided_operator.api.combinations import facts_of
from guided_operator.policy.spec_checks import check
from support import apart
from support.combinations import MINOR, REFUSED, WARNED, Example, examples, numbers, resource, runner
from support.manifests import guided_model

# What vLLM and torch warn of when imported is theirs.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

DEVICES = ("CPU", "CUDA")
ALL = [pytest.param(one, id=one.where) for one in (*ROWS, *RAN)]


def answers(device: str, models: Path) -> dict[str, Any]:
    """Return what vLLM says to each example of a device; for the CPU with Triton's interpreter."""
    here = (each for row in (*ROWS, *RAN) for each in examples(row) if each.facts.device == device)
    questions = {each.name: each.asked(models) for each in here}
    interprets = apart.ON_V2 if device == "CPU" else {}
    cache = {"VLLM_CACHE_ROOT": str(models / "cache")}
    lines = apart.ran("vllm_configurations", device, given=json.dumps(questions), **cache, **interprets)
    told: dict[str, Any] = json.loads(lines[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    models = tmp_path_factory.mktemp("models")
    return {name: one for device in DEVICES for name, one in answers(device, models).items()}


@pytest.mark.parametrize("row", ALL)
def test_vllm_says_the_same(told: dict[str, Any], row: Row | Ran) -> None:
    played = [*examples(row)]
    for example in played:
        _compare(example, told[example.name])
    assert played or "minor" in asked(row.where) or (MINOR == "0.31" and "NGram" in row.where), row.where


def _compare(example: Example, found: dict[str, Any]) -> None:
    where = example.row.where
    said, *warnings = (re.sub(r"\s+", " ", each) for each in (found["refusal"], *found["warnings"]))
    of_0_31 = "Model Runner V2 does not yet support speculative method 'ngram"
    warnings = [each for each in warnings if not each.startswith(of_0_31)]
    if where in REFUSED:
        assert REFUSED[where] in said, example.name
        return
    assert said == "", example.name
    facts = msgspec.structs.replace(example.facts, runner=example.facts.runner or runner(example.facts))
    known = {words for words, places in WARNED.items() if any(_holds(each, facts) for each in places)}
    assert {words for words in WARNED if any(words in each for each in warnings)} == known, example.name
    assert [each for each in warnings if not any(words in each for words in known)] == [], example.name
    assert found["runner"] == facts.runner, example.name
    is_sync = facts.scheduling == "Sync" or any(that_hold(facts, "falls back to sync"))
    assert found["is_async"] is not is_sync, example.name
    schedule = found["schedule"]
    assert schedule == numbers(facts, len(schedule or ())), example.name


def _holds(where: str, facts: Facts) -> bool:
    return all(getattr(facts, name) in values for name, values in asked(where).items())


@pytest.mark.parametrize("row", ALL)
def test_the_operator_says_the_same_of_a_resource(tmp_path: Path, row: Row | Ran) -> None:
    for example in examples(row):
        problems = {(each.field, each.message) for each in check(resource(example.facts, tmp_path))}
        happens = getattr(row, "happens", "")
        if not happens.endswith("refuses"):
            assert problems == set(), f"{example.name}: another row refuses it"
        elif happens == "operator refuses":
            assert (f"spec.{row.field}", row.message) in problems, example.name


@pytest.mark.parametrize("row", ALL)
def test_a_resource_is_read_as_the_facts_that_it_was_made_of(tmp_path: Path, row: Row | Ran) -> None:
    unknown = {"dense", "undrafted", "foreign"}
    for example in examples(row):
        read = facts_of(resource(example.facts, tmp_path).spec)
        for name in {*asked(row.where), "device"} - unknown:
            assert getattr(read, name) == getattr(example.facts, name), f"{example.name}: {name}"


@pytest.mark.parametrize("size", [0, 2])
def test_vllm_overlaps_batches_by_the_size_that_counts_here(size: int) -> None:
    from vllm.config.parallel import ParallelConfig

    told = SimpleNamespace(enable_dbo=False, ubatch_size=size)
    gm = guided_model(engine__args=[f"--ubatch-size={size}"])
    assert facts_of(gm.spec).dbo is ParallelConfig.use_ubatching.fget(told)


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
    rows = {REFUSED[row.where] for row in ROWS if row.where.startswith("dual batch overlap; V2;")}
    others = ("hybrid models", "multimodal models", "context parallelism", "PIECEWISE CUDA graphs")
    alone = {f"dual batch overlap with {what}" for what in others}  # docs/compatibility.md says so
    assert {*VllmConfig._get_dbo_unsupported_features(told)} == rows | alone


def test_a_rank_refuses_by_vllms_own_configuration() -> None:
    from guided_engine.compat.combination_check import RefusedError, check, facts_of

    drafts = SimpleNamespace(
        method="eagle3", rejection_sample_method="block", enable_adaptive_verification=False
    )
    config = SimpleNamespace(speculative_config=drafts, use_v2_model_runner=False)
    found = facts_of(config, [DenseFactory])
    assert (found.method, found.device, found.runner) == ("Eagle3", "CPU", "V1")
    assert (found.block, found.dense, found.undrafted) == (True, True, False)
    [row] = that_hold(found, "operator refuses", "plugin refuses")
    assert row.where.startswith("verification Block; V1")
    with pytest.raises(RefusedError, match="use Fixed, or Model Runner V2"):
        check(config, [])
    config.speculative_config.rejection_sample_method = "standard"
    check(config, [DenseFactory])
    with pytest.raises(RefusedError, match="use Model Runner V2, or remove speculative"):
        check(config, [DenseFactory, _Undrafted])
    config.use_v2_model_runner = True
    check(config, [_Undrafted])


class _Undrafted(DenseFactory[Any]):
    supports_speculation = False

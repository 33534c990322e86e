"""A setting that vLLM refuses only once it has the model: from its own words to the resource's condition."""

import dataclasses
import traceback
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from guided_contract import names
from guided_engine import last_words
from guided_operator.kube.pod_view import view
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.pod_trouble import trouble
from support.observed import applied, model, revision_of, seen, situation

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

KEPT = 2048  # bytes of a log's end that a kubelet keeps where a container wrote no message of its own


def _without_aux_states() -> None:
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import set_eagle3_aux_hidden_state_layers

    model: Any = SimpleNamespace()
    set_eagle3_aux_hidden_state_layers(model, model)


def _short_graphs() -> None:
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification

    state: Any = SimpleNamespace(num_speculative_steps=5)
    adaptive_verification.maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=state,
        query_start_loc=state,
        num_bonus_tokens=1,
        max_total_logits=1,
        vllm_config=state,
        additional_attn_cg_support=(AttentionCGSupport.UNIFORM_BATCH, "FLASH_ATTN"),
    )


def _pod(log: str, name: str = "a") -> Any:
    status = {
        "name": "engine",
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": log[-KEPT:]}},
    }
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}
    return view({"metadata": metadata, "spec": {}, "status": {"containerStatuses": [status]}})


def _ended(log: str) -> Any:
    return trouble([_pod(log)])


def _last_line(words: str) -> str:
    return f"ERROR guided_engine: guidedmodel: {names.NOT_STARTED}{words}\n"


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (_without_aux_states, "Model does not support EAGLE3 interface"),
        (_short_graphs, "or use a backend that does"),
    ],
)
def test_what_is_refused_on_a_rank_is_the_condition(
    tmp_path: Path, refuse: Callable[[], None], says: str
) -> None:
    file = tmp_path / "failure"
    with pytest.raises(Exception, match=says), last_words.noted(file):
        refuse()
    with pytest.raises(ValueError, match="another"), last_words.noted(file):
        raise ValueError("another rank's, later")
    log = "  File ...\n" * 500 + "RuntimeError: Engine core initialization failed. See root cause above.\n"
    found = _ended(log + _last_line(last_words.of(file)))
    assert found.reason == "RefusedAtStart"
    assert found.message.endswith(last_words.of(file)), "what is kept is told"
    assert says in found.message


@pytest.mark.parametrize("length", [1, 300])
def test_a_configuration_that_vllm_refuses_is_the_condition_however_long_the_reason(length: int) -> None:
    @pydantic.dataclasses.dataclass(config={"title": "SpeculativeConfig"})
    class Refusing:
        def __post_init__(self) -> None:
            raise ValueError("so " * length)

    with pytest.raises(pydantic.ValidationError) as refused:
        Refusing()
    told = "".join(traceback.format_exception(refused.value))
    log = "".join(f"(APIServer pid=123) {line}\n" for line in told.splitlines())
    found = _ended(log)
    assert found.reason == "RefusedAtStart"
    assert "Value error, so" in found.message


@pytest.mark.parametrize("trouble", ["Unschedulable", "ContainerCrashed"])
def test_another_pods_trouble_hides_no_refusal(trouble: str) -> None:
    raw = model()
    refused = _pod(_last_line("ValueError: M does not support eagle3"), name="b")
    other = _pod("KeyError: 'x'\n", name="a")
    if trouble == "Unschedulable":
        other = dataclasses.replace(other, containers=(), unschedulable="no GPU is left")
    pods = tuple(dataclasses.replace(pod, revision=revision_of(raw)) for pod in (other, refused))
    found = decide(situation(dataclasses.replace(applied(seen(raw)), pods=pods)))
    assert found["Ready"].reason == trouble
    assert (found["Compatible"].status, found["Compatible"].reason) == ("False", "RefusedAtStart")
    assert "pod b: " in found["Compatible"].message


@pytest.mark.parametrize(
    "said",
    [
        "KeyError: 'not supported'",
        "RuntimeError: CUDA error: operation not supported. Compile with TORCH_USE_CUDA_DSA.",
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)",
    ],
)
def test_a_fault_at_the_start_is_no_refusal(said: str) -> None:
    for log in (_last_line(said), f"{said}\n", "ValueError: an engine that ran does not support x\n"):
        assert _ended(log).reason == "ContainerCrashed"


@pytest.mark.parametrize("held_outside", [0, 100 << 30])
def test_too_little_memory_is_no_refusal(tmp_path: Path, held_outside: int) -> None:
    from vllm.v1.worker.utils import request_memory

    device: Any = SimpleNamespace(total_memory=80 << 30, free_memory=1 << 30, device_="cuda:0")
    cache: Any = SimpleNamespace(gpu_memory_utilization=0.9)
    file = tmp_path / "failure"
    with pytest.raises(ValueError, match="memory"), last_words.noted(file):
        request_memory(*(device, cache, held_outside)[: len(signature(request_memory).parameters)])
    assert _ended(_last_line(last_words.of(file))).reason == "OutOfMemory"


def test_words_are_of_one_line_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "failure"
    with pytest.raises(ValueError, match="a"), last_words.noted(file):
        raise ValueError("a\n" * 5000 + "\u00e9" * 100)
    assert last_words.of(file).startswith("ValueError: a a a")
    assert last_words.of(file).endswith("\u00e9" * 100), "its end says what to do"
    assert len(last_words.of(file)) <= 350
    assert last_words.of(tmp_path / "none") == ""

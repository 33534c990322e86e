"""A setting that vLLM refuses only once it has the model: from its own words to the resource's condition."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guided_engine import last_words
from guided_operator.kube.pod_view import view
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.pod_trouble import trouble
from support.observed import applied, model, revision_of, seen, situation

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

KEPT = 2048  # bytes of a log's end that a kubelet keeps where a container wrote no message of its own


def _behind_stages() -> None:
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import verify_supports_aux_hidden_states_over_pp

    model: Any = SimpleNamespace(model=SimpleNamespace())
    verify_supports_aux_hidden_states_over_pp(model, "eagle3")


def _without_aux_states() -> None:
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import set_eagle3_aux_hidden_state_layers

    model: Any = SimpleNamespace()
    set_eagle3_aux_hidden_state_layers(model, model)


def _unknown_method() -> None:
    from vllm.config import SpeculativeConfig

    SpeculativeConfig(method="eagle3", num_speculative_tokens=3)


def _pod(log: str) -> Any:
    status = {
        "name": "engine",
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": log[-KEPT:]}},
    }
    metadata = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    return view({"metadata": metadata, "spec": {}, "status": {"containerStatuses": [status]}})


def _ended(log: str) -> Any:
    return trouble([_pod(log)])


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (_behind_stages, "does not support eagle3 with pipeline parallelism"),
        (_without_aux_states, "Model does not support EAGLE3 interface"),
        (_unknown_method, "num_speculative_tokens was provided but without speculative model"),
    ],
)
def test_what_vllm_refuses_on_a_rank_is_the_condition(
    tmp_path: Path, refuse: Callable[[], None], says: str
) -> None:
    file = tmp_path / "failure"
    with pytest.raises(Exception, match=says), last_words.noted(file):
        refuse()
    with pytest.raises(ValueError, match="another"), last_words.noted(file):
        raise ValueError("another rank's, later")
    log = "  File ...\n" * 500 + "RuntimeError: Engine core initialization failed. See root cause above.\n"
    found = _ended(f"{log}guidedmodel: the engine did not start: {last_words.of(file)}\n")
    assert found.reason == "RefusedAtStart"
    assert says in found.message


def test_whoever_waits_for_compatible_hears_it() -> None:
    raw = model()
    refused = _pod("guidedmodel: the engine did not start: ValueError: M does not support eagle3\n")
    refused = dataclasses.replace(refused, revision=revision_of(raw))
    found = decide(situation(dataclasses.replace(applied(seen(raw)), pods=(refused,))))
    for condition in ("Compatible", "Ready"):
        assert (found[condition].status, found[condition].reason) == ("False", "RefusedAtStart")
    assert "does not support eagle3" in found["Compatible"].message


def test_an_error_of_the_code_is_no_refusal() -> None:
    found = _ended("guidedmodel: the engine did not start: KeyError: 'not supported'\n")
    assert found.reason == "ContainerCrashed"


def test_words_are_of_one_line_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "failure"
    with pytest.raises(ValueError, match="a"), last_words.noted(file):
        raise ValueError("a\n" * 5000)
    assert last_words.of(file).startswith("ValueError: a a a")
    assert len(last_words.of(file)) <= 1000
    assert last_words.of(tmp_path / "none") == ""

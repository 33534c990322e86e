"""Which drafts vLLM's scheduler counts, of a request whose grammar the ranks have and of one whose it has."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from devtools import tinymodel

from guided_contract.heartbeat import Heartbeats, core_slot
from guided_contract.wire import Hello
from guided_engine.compat import core as core_patches
from guided_engine.compat.runner import INVALID_ATTRIBUTE
from support.engine import pod_config, wait_until
from support.fake_service import FakeService
from support.scheduler import Core, change_core

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

DRAFTS = 3
SCHEDULE = [[1, 2, DRAFTS], [3, 4, 0]]  # as of disableAbove: 2


def drafting(**options: Any) -> dict[str, Any]:
    model = str(tinymodel.models() / "tiny-draft")
    return {"method": "draft_model", "model": model, "num_speculative_tokens": DRAFTS, **options}


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Core:
    change_core(monkeypatch, pod_config(tmp_path, model="/nowhere"))
    return Core(is_async=True, speculative_config=drafting(), per_request_spec_decode_metrics="detailed")


@pytest.mark.parametrize("word", ["aba", "aaa"])
def test_proposed_are_counted_as_upstream_counts_them(running: Core, word: str) -> None:
    """Upstream's scheduler subtracts what its own grammar refuses of each step's drafts."""
    from vllm.v1.outputs import DraftTokenIds

    ours, theirs = running.add("ours"), running.add("theirs", by_upstream=True)
    wait_until(lambda: theirs.structured_output_request.grammar)
    unguided = running.add("unguided", guided=False, ticket=False)
    running.step(token=running.letter("a"))
    scheduled = running.scheduler.schedule()
    assert scheduled.scheduled_spec_decode_tokens["ours"] == [-1] * DRAFTS
    drafts = [running.letter(letter) for letter in word]
    names = list(scheduled.num_scheduled_tokens)
    running.scheduler.update_draft_token_ids_in_output(
        DraftTokenIds(names, [list(drafts) for _ in names]), scheduled
    )
    valid = len(word.partition("b")[0])
    sampled = [*drafts[:valid], running.letter("a")]
    invalid = {"ours": DRAFTS - valid} if valid < DRAFTS else {}
    output = running.output(scheduled, dict.fromkeys(names, sampled))
    setattr(output, INVALID_ATTRIBUTE, invalid)
    running.scheduler.update_from_output(scheduled, pickle.loads(pickle.dumps(output)))  # as it arrives
    assert ours.spec_decode_metrics == theirs.spec_decode_metrics
    assert ours.spec_decode_metrics.num_draft_tokens == valid
    assert unguided.spec_decode_metrics.num_draft_tokens == DRAFTS


def test_the_core_says_hello_and_beats_with_its_steps_requests_and_draft_tokens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Draft tokens by what vLLM's scheduler wrote into the step, whoever makes its schedule by batch size."""
    from vllm.v1.engine.core import DPEngineCoreProc, EngineCoreProc

    pod = pod_config(tmp_path, model="/nowhere")
    for process in (EngineCoreProc, DPEngineCoreProc):
        monkeypatch.setattr(process, "run_busy_loop", lambda _self: None)
    core_patches.show_presence(pod)
    running = Core(is_async=True, speculative_config=drafting(num_speculative_tokens_per_batch_size=SCHEDULE))
    core = object.__new__(EngineCoreProc)
    core.scheduler = running.scheduler
    core.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0))
    beats = Heartbeats.create(pod.heartbeats_file)
    with FakeService(pod.service_socket) as service:
        core.run_busy_loop()
        hello = service.wait_for(Hello)
    assert (hello.role, hello.rank, hello.unsupported) == ("core", None, "")
    assert beats.read(core_slot(0, 1)).pid == hello.pid

    def told() -> tuple[int, int, int]:
        beat = beats.read(core_slot(0, 1))
        return beat.steps, beat.drafts, beat.busy

    running.add("first", guided=False, ticket=False)
    running.step()
    wait_until(lambda: told() == (1, DRAFTS, 1))
    for name in ("second", "third"):
        running.add(name, guided=False, ticket=False)
    running.step()
    wait_until(lambda: told() == (2, 0, 3))
    running.scheduler.dynamic_sd_lookup = [1] * 5  # amid it all, as what follows the load would
    running.step()
    wait_until(lambda: told() == (3, 1, 3))
    beats.close()

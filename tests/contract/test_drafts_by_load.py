"""Draft tokens in vLLM's own scheduler: numTokens Auto, and which are counted; the test is the runner."""

import pickle
from collections import deque
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from devtools import tinymodel

from guided_contract.heartbeat import Heartbeats, core_slot
from guided_contract.records import DraftTokens
from guided_contract.wire import Hello
from guided_engine.compat import core as core_patches
from guided_engine.compat.core_drafts import DraftsByLoad, choose_drafts
from guided_engine.compat.runner import INVALID_ATTRIBUTE
from guided_operator.builders.arguments import schedule_by_load
from support.engine import pod_config, wait_until
from support.fake_service import FakeService
from support.scheduler import Core, change_core

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MOST = 3
SLOW, QUICK = 0.9, 0.1  # seconds of a step with draft tokens, and without


class Running:
    """A scheduler whose numbers are chosen, and what became of them."""

    def __init__(self, *, is_async: bool, ahead: int = 0, **speculative: Any) -> None:
        # Of methods that Model Runner V1 has a schedule for.
        by_model = {"method": "draft_model", "model": str(tinymodel.models() / "tiny-draft")}
        told = {
            **(by_model if is_async else {"method": "ngram", "prompt_lookup_max": 2}),
            "num_speculative_tokens": MOST,
            "num_speculative_tokens_per_batch_size": schedule_by_load(MOST, 4),
            **speculative,
        }
        self.core = Core(is_async=is_async, speculative_config=told)
        self.scheduler = self.core.scheduler
        self.now_s = 100.0
        self.records: list[DraftTokens] = []
        self.proposed: list[int] = []
        self._ahead, self._flying = ahead, deque[Any]()

    def choose(self) -> DraftsByLoad:
        made = DraftsByLoad(self.scheduler, 0, self.records.append, lambda: self.now_s)
        made.start()
        return made

    def step(self) -> dict[str, Any]:
        """Run a step that accepts no drafts."""
        output = self.scheduler.schedule()
        if output.num_scheduled_tokens:
            self.proposed.append(output.num_spec_tokens_to_schedule)
        self._flying.append(output)
        if len(self._flying) <= self._ahead and self.scheduler.requests:
            return {}
        output = self._flying.popleft()
        with_drafts = any(map(len, output.scheduled_spec_decode_tokens.values()))
        self.now_s += SLOW if with_drafts else QUICK
        found = self.core.take(output)
        if not self.scheduler.scheduler_config.async_scheduling:
            self._draft(output)
        return found

    def _draft(self, output: Any) -> None:
        from vllm.v1.outputs import DraftTokenIds

        ids = [one for one in output.num_scheduled_tokens if one in self.scheduler.requests]
        drafts = [[7] * output.num_spec_tokens_to_schedule for _ in ids]
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def running(request: pytest.FixtureRequest) -> Running:
    return Running(is_async=request.param)


def served(running: Running, requests: int = 30) -> list[int]:
    """Serve requests one after the other, and return how many tokens each got."""
    got = []
    for number in range(requests):
        running.core.add(f"r{number}", guided=False, ticket=False)
        tokens = 0
        while running.scheduler.requests:
            tokens += sum(len(one.new_token_ids) for one in running.step().values())
        got.append(tokens)
    return got


def test_the_scheduler_proposes_what_is_chosen(running: Running) -> None:
    """Drafts cost, and none is accepted: it begins with the most, and comes to none."""
    made = running.choose()
    assert served(running) == [8] * 30
    assert running.proposed[0] == MOST
    assert running.proposed[-20:] == [0] * 20
    assert {*running.proposed} <= {0, 1, MOST}
    assert any(before != after for before, after in pairwise(running.proposed))
    # What the sidecar knows is of an engine before, such as the fault that ended it.
    assert running.records[0] == DraftTokens(engine=0, chosen=None)
    told = running.records[1:]
    assert [each.chosen for each in told[-3:]] == [0] * 3
    assert sum(each.changes for each in told) >= 1
    assert all(each.engine == 0 for each in told)
    times = 1 + running.now_s - 100
    assert len(told) <= times  # once a second at most
    assert made._is_choosing


def test_whatever_fails_leaves_vllm_its_own_schedule_and_ends_no_request(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = running.scheduler.dynamic_sd_lookup
    made = running.choose()
    assert running.scheduler.dynamic_sd_lookup is not own
    served(running, 5)

    def fail(_step: object) -> None:
        raise ArithmeticError("a fault")

    monkeypatch.setattr(made._controller, "take", fail)
    assert served(running, 5) == [8] * 5
    assert running.scheduler.dynamic_sd_lookup is own
    assert running.proposed[-3:] == [MOST] * 3
    why = "numTokens Auto ended by a fault: ArithmeticError"
    assert running.records[-1] == DraftTokens(engine=0, chosen=None, why=why)


def test_steps_in_flight_are_measured() -> None:
    """Async scheduling makes the next step before the last one's tokens are known."""
    running = Running(is_async=True, ahead=1)
    made = running.choose()
    controller: Any = made._controller
    take, seen = controller.take, []
    controller.take = lambda step: (seen.append(step), take(step))
    assert served(running) == [8] * 30
    assert sum(step.seconds is not None for step in seen) > len(seen) / 3
    assert running.proposed[-20:] == [0] * 20


@pytest.mark.parametrize(
    ("speculative", "why"),
    [
        ({"num_speculative_tokens_per_batch_size": None}, "no schedule by batch size"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, MOST]]}, "holds one number"),
    ],
)
def test_where_there_is_nothing_to_choose_vllm_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, speculative: dict[str, Any], why: str
) -> None:
    scheduler = Running(is_async=False, **speculative).scheduler
    own, schedule = scheduler.dynamic_sd_lookup, scheduler.schedule
    pod = msgspec.structs.replace(pod_config(tmp_path, model="/nowhere"), drafts_by_load=True)
    choose_drafts(scheduler, pod, 0)
    assert scheduler.dynamic_sd_lookup is own
    assert scheduler.schedule == schedule
    assert why in caplog.text


@pytest.mark.parametrize(("most", "largest"), [(1, 2), (3, 3), (3, 128)])
def test_vllms_own_lookup_holds_what_may_be_chosen(most: int, largest: int) -> None:
    """And for each number a graph of nearly the largest batch: vLLM's widest batch that has it."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    lookup = build_dynamic_sd_schedule_lookup(schedule_by_load(most, largest), largest, most)
    wanted = sorted({0, 1, most}) if largest > 2 or most == 1 else [0, most]
    assert sorted({*lookup[1:]}) == wanted
    assert all(largest - lookup[::-1].index(number) >= largest - 3 for number in wanted)
    beyond = build_dynamic_sd_schedule_lookup(schedule_by_load(most, largest), 1024, most)
    assert beyond[-1] == (most if largest > len(wanted) - 1 and largest > 3 else lookup[-1])


SCHEDULE = [[1, 2, MOST], [3, 4, 0]]  # as of disableAbove: 2


def drafting(**options: Any) -> dict[str, Any]:
    model = str(tinymodel.models() / "tiny-draft")
    return {"method": "draft_model", "model": model, "num_speculative_tokens": MOST, **options}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Core:
    change_core(monkeypatch, pod_config(tmp_path, model="/nowhere"))
    return Core(is_async=True, speculative_config=drafting(), per_request_spec_decode_metrics="detailed")


@pytest.mark.parametrize("word", ["aba", "aaa"])
def test_proposed_are_counted_as_upstream_counts_them(counting: Core, word: str) -> None:
    """Upstream's scheduler subtracts what its own grammar refuses of each step's drafts."""
    from vllm.v1.outputs import DraftTokenIds

    ours, theirs = counting.add("ours"), counting.add("theirs", by_upstream=True)
    wait_until(lambda: theirs.structured_output_request.grammar)
    unguided = counting.add("unguided", guided=False, ticket=False)
    counting.step(token=counting.letter("a"))
    scheduled = counting.scheduler.schedule()
    assert scheduled.scheduled_spec_decode_tokens["ours"] == [-1] * MOST
    drafts = [counting.letter(letter) for letter in word]
    names = list(scheduled.num_scheduled_tokens)
    counting.scheduler.update_draft_token_ids_in_output(
        DraftTokenIds(names, [list(drafts) for _ in names]), scheduled
    )
    valid = len(word.partition("b")[0])
    sampled = [*drafts[:valid], counting.letter("a")]
    invalid = {"ours": MOST - valid} if valid < MOST else {}
    output = counting.output(scheduled, dict.fromkeys(names, sampled))
    setattr(output, INVALID_ATTRIBUTE, invalid)
    counting.scheduler.update_from_output(scheduled, pickle.loads(pickle.dumps(output)))  # as it arrives
    assert ours.spec_decode_metrics == theirs.spec_decode_metrics
    assert ours.spec_decode_metrics.num_draft_tokens == valid
    assert unguided.spec_decode_metrics.num_draft_tokens == MOST


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
    core.scheduler, core.model_executor = running.scheduler, None
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
    wait_until(lambda: told() == (1, MOST, 1))
    for name in ("second", "third"):
        running.add(name, guided=False, ticket=False)
    running.step()
    wait_until(lambda: told() == (2, 0, 3))
    running.scheduler.dynamic_sd_lookup = [1] * 5  # amid it all, as what follows the load would
    running.step()
    wait_until(lambda: told() == (3, 1, 3))
    beats.close()

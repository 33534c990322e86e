"""numTokens Auto around the installed vLLM's own scheduler; the model runner, and the clock, are the test."""

import itertools
from collections import deque
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from guided_contract.records import DraftTokens
from guided_engine.compat.core_drafts import DraftsByLoad, choose_drafts
from guided_operator.builders.arguments import schedule_by_load
from support.engine import pod_config
from support.scheduler import Core

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MOST = 3
SLOW, QUICK = 0.9, 0.1  # seconds of a step with draft tokens, and without


class Running:
    """A scheduler whose numbers are chosen, and what became of them."""

    def __init__(self, *, is_async: bool, **speculative: Any) -> None:
        told = {
            "method": "ngram" if not is_async else "ngram_gpu",
            "num_speculative_tokens": MOST,
            "prompt_lookup_max": 2,
            "num_speculative_tokens_per_batch_size": schedule_by_load(MOST, 4),
            **speculative,
        }
        self.core = Core(is_async=is_async, speculative_config=told)
        self.scheduler = self.core.scheduler
        self.now_s = 100.0
        self.records: list[DraftTokens] = []
        self.proposed: list[int] = []

    def choose(self) -> DraftsByLoad:
        made = DraftsByLoad(self.scheduler, 0, self.records.append, lambda: self.now_s)
        made.start()
        return made

    def step(self) -> dict[str, Any]:
        """Run a step that accepts no drafts."""
        output = self.scheduler.schedule()
        self.proposed.append(output.num_spec_tokens_to_schedule)
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


@pytest.mark.parametrize("batches", [[4], [4, 60]], ids=["one stage", "two stages"])
def test_steps_in_flight_are_measured_whatever_is_between_them(batches: list[int]) -> None:
    """As many batches as stages and a step ahead, now and then one of nothing: drafts, all in vain, go."""
    played = Played(batches)
    made = DraftsByLoad(played, 0, lambda _record: None, lambda: played.now_s)
    controller: Any = made._controller
    take, seen = controller.take, []
    controller.take = lambda step: (seen.append(step), take(step))
    made.start()
    for number in range(1000):
        played.step(is_empty=number % 10 == 5)
    assert len(seen) > 850
    assert sum(step.seconds is not None for step in seen) > 500
    assert [played.dynamic_sd_lookup[batch] for batch in batches] == [0] * len(batches)


class Played:
    """As much of a scheduler as `DraftsByLoad` sees, of one that is a step ahead of its device."""

    def __init__(self, batches: list[int]) -> None:
        self.vllm_config = SimpleNamespace(
            speculative_config=SimpleNamespace(enable_adaptive_verification=False),
            parallel_config=SimpleNamespace(pipeline_parallel_size=len(batches)),
        )
        self.dynamic_sd_lookup = [0, *([MOST] * 62), 1, 0]
        self.now_s = 0.0
        self._stages = itertools.cycle(range(len(batches)))
        self._batches = [
            [f"{stage}-{number}" for number in range(size)] for stage, size in enumerate(batches)
        ]
        self._drafts = [0] * len(batches)
        self._flying: deque[Any] = deque()

    def step(self, *, is_empty: bool) -> None:
        """Schedule one, and take the tokens of the oldest once more are in flight than there are stages."""
        self._flying.append(self.schedule(is_empty=is_empty))
        if len(self._flying) > 1 + len(self._batches):
            output = self._flying.popleft()
            names = list(output.num_scheduled_tokens)
            self.now_s += 0.1 * max(output.num_scheduled_tokens.values(), default=0)
            places = {name: place for place, name in enumerate(names)}
            sampled = SimpleNamespace(sampled_token_ids=[[1] for _ in names], req_id_to_index=places)
            self.update_from_output(output, sampled)

    def schedule(self, *, is_empty: bool) -> Any:
        """Return the next batch's step, or one of nothing."""
        stage = next(self._stages) if not is_empty else 0
        names, drafts = ([], 0) if is_empty else (self._batches[stage], self._drafts[stage])
        if not is_empty:
            self._drafts[stage] = self.dynamic_sd_lookup[len(names)]
        return SimpleNamespace(
            total_num_scheduled_tokens=len(names) * (1 + drafts),
            num_scheduled_tokens=dict.fromkeys(names, 1 + drafts),
            scheduled_spec_decode_tokens=dict.fromkeys(names, [-1] * drafts) if drafts else {},
            num_spec_tokens_to_schedule=0 if is_empty else self._drafts[stage],
        )

    def update_from_output(self, *_: Any) -> dict[int, Any]:
        """Return nothing for anybody."""
        return {}

    def get_num_unfinished_requests(self) -> int:
        """Return that there are some, for ever."""
        return 1


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

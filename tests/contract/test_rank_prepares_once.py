"""A drawn life of a rank: `prepare` once for each step and sequence that samples, and its edits once applied.

With drafts, prompts in chunks, preemption, aborts and names that come again, sync and async.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors.interface import (
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from support.rank import Rank, arrival

PROMPT = [1, 2, 3]
STEPS = 400
NAMES = "abcdefgh"


class Tells(ProcessorFactory[Params]):
    """Writes down what each of its processors is asked, and how many of them there are."""

    asked: ClassVar[list[tuple[str, list[int], list[int]]]] = []
    alive: ClassVar[list[str]] = []

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor:
        self.alive.append(sequence.request_id)
        return Told(sequence.request_id)


class Told(SequenceProcessor):
    def __init__(self, name: str) -> None:
        self.name = name
        self.tokens: list[int] = []

    def prepare(self, ahead: Sequence[int]) -> list[Edits]:
        Tells.asked.append((self.name, list(self.tokens), list(ahead)))
        return [Edits.add([place], 1.0 + len(self.tokens)) for place in range(1 + len(ahead))]

    def accept(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def release(self) -> None:
        Tells.alive.remove(self.name)


@dataclass
class Request:
    """What the engine core knows of one."""

    computed: int = 0
    tokens: list[int] = field(default_factory=list)
    needed: int = len(PROMPT)
    is_new: bool = True

    @property
    def is_decoding(self) -> bool:
        return self.computed >= self.needed

    def preempt(self) -> None:
        """Keep what it has sampled, to be computed anew."""
        self.computed, self.is_new, self.needed = 0, True, len(PROMPT) + len(self.tokens)


class Core:
    """An engine core that schedules by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.requests: dict[str, Request] = {}
        self.sampling: dict[str, list[int]] = {}  # of this step, with the drafts of each
        self.preempted = 0

    def come_and_go(self) -> list[str]:
        """Return who is over; others come, also under a name that was there before."""
        gone = [name for name in self.requests if self.chance.random() < 0.05]
        for name in gone:
            del self.requests[name]
        for name in NAMES:
            if name not in self.requests and self.chance.random() < 0.2:
                self.requests[name] = Request()
        return gone

    def schedule(self) -> dict[str, Any]:
        """Return a step's plan, as Rank.step takes it."""
        plan: dict[str, Any] = {"arrivals": [], "computed": {}, "scheduled": {}, "drafts": {}}
        self.sampling = {}
        for name, request in self.requests.items():
            if not request.is_new and request.is_decoding and self.chance.random() < 0.1:
                self.preempted += 1
                request.preempt()
            elif not request.is_new and self.chance.random() < 0.2:
                continue  # not in this step
            self._put(plan, name, request)
        return plan

    def _put(self, plan: dict[str, Any], name: str, request: Request) -> None:
        if request.is_new:
            known = [*PROMPT, *request.tokens]
            come = arrival(name, None, is_guided=False, prompt_tokens=PROMPT, known_tokens=known)
            plan["arrivals"].append(come)
            request.is_new = False
        else:
            plan["computed"][name] = request.computed
        drafts: list[int] = []
        if request.is_decoding:
            drafts = [self.chance.randrange(9) for _ in range(self.chance.randint(0, 3))]
            count = 1 + len(drafts)
        else:
            count = self.chance.randint(1, request.needed - request.computed)  # a chunk, or all of it
        plan["scheduled"][name] = count
        if drafts:
            plan["drafts"][name] = drafts
        request.computed += count
        if request.is_decoding:
            self.sampling[name] = drafts

    def sample(self) -> dict[str, list[int]]:
        """Return what is sampled: some of the drafts, and a token."""
        sampled = {}
        for name, drafts in self.sampling.items():
            kept = self.chance.randint(0, len(drafts))
            sampled[name] = [*drafts[:kept], self.chance.randrange(9)]
            self.requests[name].tokens += sampled[name]
            self.requests[name].computed -= len(drafts) - kept
        return sampled


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", [0])
def test_prepare_is_called_once_a_step_and_applied_once(seed: int, *, is_async: bool) -> None:
    core = Core(seed)
    config = LogitsProcessorConfig(name="tells", factory=f"{__name__}:Tells")
    rank = Rank([config], is_async=is_async)
    Tells.alive.clear()
    sampled = 0
    for _ in range(STEPS):
        finished = core.come_and_go()
        plan = core.schedule()
        Tells.asked.clear()
        rank.step(finished=finished, **plan)
        edits = rank.guide.edits() if rank.guide.is_sampling else None
        wanted = [(name, core.requests[name].tokens, drafts) for name, drafts in core.sampling.items()]
        assert sorted(Tells.asked) == sorted(wanted), f"seed {seed}"
        rows = {} if edits is None else edits.rows
        assert rows == {name: 1 + len(drafts) for name, drafts in core.sampling.items()}, f"seed {seed}"
        given = [] if edits is None else [(name, row) for name, row, _ in edits.each()]
        assert given == [(name, row) for name, count in rows.items() for row in range(count)]
        assert sorted(Tells.alive) == sorted(core.requests), f"seed {seed}"
        tokens = core.sample()
        rank.sampled(**tokens)
        sampled += len(tokens)
    assert sampled > STEPS
    assert core.preempted > 20

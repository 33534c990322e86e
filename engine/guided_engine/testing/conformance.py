"""The rules that any factory must keep, tried on sequences of random tokens."""

import gc
import hashlib
import itertools
import random
import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListOf
from typing import Any, Final, NamedTuple

import numpy as np

from guided_engine.processors.interface import Context
from guided_engine.testing.elsewhere import Elsewhere, NotThereError, RaisedThereError
from guided_engine.testing.harness import Factory, Harness, Logits, Sequence, Turn

_SEQUENCES: Final = 5
_MOST_DRAFTS: Final = 3


class ConformanceError(AssertionError):
    """A factory breaks a rule; the message says which, and how it was tried."""


def check_factory(  # noqa: PLR0913 - what a case consists of, by name
    factory: Factory,
    params: Mapping[str, Any] | None = None,
    context: Context | None = None,
    *,
    tokens: ListOf[int] | None = None,
    max_tokens: int | None = None,
    sampling_params: Any = None,
    steps: int = 40,
    seed: int = 0,
    second_process: bool = True,
) -> None:
    """Try whether a factory keeps the rules of the interface.

    1. `prepare` does not move: drafts that are not accepted leave no trace.
    2. Row i is what row 0 is once the first i drafts are accepted.
    3. Tokens accepted at once are tokens accepted one by one; so a preempted sequence comes back as it was.
    4. Sequences share nothing: beside others, and in any order of rows, each gets what it gets alone.
    5. Two ranks come to the same results, also as two processes, in which strings hash otherwise.
    6. What is released is forgotten, and a name can come again.
    7. Nothing that a DenseFactory is given is read by the host (tried on tensors without content).

    Parameters
    ----------
    factory, params, context
        As Harness takes them.
    tokens
        What sequences consist of; without them any id.
    max_tokens, sampling_params
        Of each sequence.
    steps
        How many steps are tried.
    seed
        Of what is drawn; the same seed tries the same.
    second_process
        Whether all of it is done in another process, too, for rule 5. That has to import the factory, as the
        engine does; without it a result that depends on `hash()`, or on the order of a set, is not found.

    Raises
    ------
    ConformanceError
        A rule is broken.
    """
    told = {"max_tokens": max_tokens, "sampling_params": sampling_params}
    trial = _Trial(factory, params, context, tokens, told, steps, seed)
    if not second_process:
        _tried(trial)
        return
    try:
        with Elsewhere(_tried, trial) as other:
            mine = _tried(trial)
            theirs = other.result()
    except NotThereError as error:
        raise ConformanceError(
            f"rule 5 cannot be tried, because another process cannot have the factory ({error}): put it into "
            "a module, or say second_process=False"
        ) from error
    except RaisedThereError as error:
        raise ConformanceError(f"rule 5 is broken: in another process {error} (seed {seed})") from error
    for step, (one, another) in enumerate(zip(mine, theirs, strict=True)):
        if one != another:
            raise ConformanceError(
                f"rule 5 is broken: in another process step {step} gave something else (seed {seed}); it may "
                "depend on hash(), or on the order of a set"
            )


class _Trial(NamedTuple):
    """What is tried, as check_factory has it."""

    factory: Factory
    params: Mapping[str, Any] | None
    context: Context | None
    tokens: ListOf[int] | None
    told: Mapping[str, Any]
    steps: int
    seed: int


def _tried(trial: _Trial) -> list[str]:
    """Try all rules that one process can try, and return a digest of what each step gave."""
    case = _Case(trial)
    try:
        case.walk(trial.steps)
        case.forget()
        case.read_nothing()
    finally:
        case.close()
    return case.digests


class _Pair(NamedTuple):
    """A sequence and its twin, of one name on each rank: a processor may draw from it."""

    request_id: str
    prompt: list[int]
    sequence: Sequence
    twin: Sequence


class _Case:
    """Sequences on one rank, each with a twin, which lives alone on another rank without drafts."""

    def __init__(self, trial: _Trial) -> None:
        self.seed = trial.seed
        self.rng = random.Random(trial.seed)  # noqa: S311 - draws cases
        self.noise = np.random.default_rng(trial.seed)
        self.digests: list[str] = []
        self.make: Callable[[], Harness] = lambda: Harness(trial.factory, trial.params, trial.context)
        self.rank = self.make()
        self.tokens = trial.tokens or range(self.rank.vocab_size)
        self.told = trial.told
        self.third = self.make()
        self.harnesses = [self.rank, self.third]
        self.names = itertools.count()
        self.alive = [self.start(self.name()) for _ in range(_SEQUENCES)]

    def name(self) -> str:
        return f"request-{next(self.names)}"

    def start(self, request_id: str) -> _Pair:
        """Return a sequence of the rank, and its twin; each pair has a prompt of its own."""
        prompt = self.some(6)
        self.harnesses.append(self.make())
        first, twin = (self.begun(rank, prompt, request_id) for rank in (self.rank, self.harnesses[-1]))
        return _Pair(request_id, prompt, first, twin)

    def begun(self, rank: Harness, prompt: list[int], request_id: str) -> Sequence:
        return rank.sequence(prompt, request_id=request_id, **self.told)

    def some(self, count: int) -> list[int]:
        return [self.rng.choice(self.tokens) for _ in range(count)]

    def logits(self, rows: int) -> Logits:
        return self.noise.normal(size=(rows, self.rank.vocab_size)).astype(np.float32)

    def same(self, rule: int, left: Logits, right: Logits) -> None:
        if not np.array_equal(left, right):
            columns = np.flatnonzero((left != right).any(axis=0))[:5].tolist()
            raise ConformanceError(f"rule {rule} is broken, at token ids {columns} (seed {self.seed})")

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            turns = []
            for _, _, sequence, _ in self.rng.sample(self.alive, len(self.alive)):
                drafts = self.some(self.rng.randint(0, _MOST_DRAFTS) if sequence.supports_speculation else 0)
                turns.append(Turn(sequence, self.logits(1 + len(drafts)), drafts))
            changed = self.rank.step(turns)
            self.digests.append(hashlib.sha256(b"".join(rows.tobytes() for rows in changed)).hexdigest())
            # Order of rows: 4. Asked again: 1.
            for again, once in zip(self.rank.step(turns[::-1])[::-1], changed, strict=True):
                self.same(1, again, once)
            for turn, rows in zip(turns, changed, strict=True):
                self.judge(turn, rows)

    def judge(self, turn: Turn, rows: Logits) -> None:
        index, pair = next(
            (index, pair) for index, pair in enumerate(self.alive) if pair.sequence is turn.sequence
        )
        twin = pair.twin
        self.same(4, rows[:1], twin.rows(turn.logits[:1]))
        # As if its drafts were accepted, on a third rank, which is given all before them at once.
        ahead = self.begun(self.third, pair.prompt, pair.request_id)
        if known := turn.sequence.tokens:
            ahead.accept(*known)
        self.same(3, rows[:1], ahead.rows(turn.logits[:1]))
        for place, draft in enumerate(turn.drafts, start=1):
            ahead.accept(draft)
            self.same(2, rows[place : place + 1], ahead.rows(turn.logits[place : place + 1]))
        ahead.release()
        kept = self.rng.randint(0, len(turn.drafts))
        accepted = [*turn.drafts[:kept], *self.some(1)]
        turn.sequence.accept(*accepted)
        for token in accepted:
            twin.accept(token)
        fate = self.rng.random()
        if fate < 0.2:  # preempted, with or without the last token
            lost = self.rng.randint(0, 1)
            turn.sequence.preempt(lost)
            twin.preempt(lost)
            zeros = np.zeros((1, self.rank.vocab_size), np.float32)
            self.same(3, turn.sequence.rows(zeros), twin.rows(zeros))
        elif fate < 0.3:  # over, and another one comes
            turn.sequence.release()
            twin.release()
            self.alive[index] = self.start(self.name())

    def forget(self) -> None:
        """Try rule 6."""
        sequence = self.begun(self.rank, self.some(6), "again")
        sequence.accept(*self.some(3))
        watched = [weakref.ref(one) for one in sequence.processors if hasattr(one, "__weakref__")]
        sequence.release()
        gc.collect()
        if any(ref() is not None for ref in watched):
            raise ConformanceError("rule 6 is broken: the factory still holds a processor that was released")
        _, _, fresh, twin = self.start("again")
        logits = self.logits(1)
        self.same(6, fresh.rows(logits), twin.rows(logits))

    def read_nothing(self) -> None:
        """Try rule 7: a tensor on the meta device has a shape and no content, and raises where it is read."""
        try:
            self.rank.step([Turn(self.alive[0].sequence, self.logits(1))], on_meta=True)
        except RuntimeError as error:  # NotImplementedError is one
            raise ConformanceError(f"rule 7 is broken: {error}") from error

    def close(self) -> None:
        for harness in self.harnesses:
            harness.close()

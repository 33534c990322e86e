"""What the interface asks of a factory of logits processors, tried on sequences of random tokens."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guided_engine.processors.interface import Context
from guided_engine.testing import Harness
from guided_engine.testing import Sequence as Tested
from guided_engine.testing.harness import Logits


class _Pair(NamedTuple):
    """A sequence beside others, and its twin, alone on another rank and without drafts."""

    prompt: list[int]
    name: str
    beside: Tested
    alone: Tested


def check(  # noqa: C901, PLR0913 - what a case consists of, by name, and its life
    factory: Any,
    params: Mapping[str, Any] | None = None,
    context: Context | None = None,
    *,
    tokens: Sequence[int] | None = None,
    steps: int = 40,
    seed: int = 0,
    **request: Any,
) -> None:
    """Assert that it looks ahead without moving, knows tokens alone, and shares nothing between sequences."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    made: list[Harness] = []

    def rank() -> Harness:
        made.append(Harness(factory, params, context))
        return made[-1]

    first, third = rank(), rank()
    known = tokens or range(first.vocab_size)

    def some(count: int) -> list[int]:
        return [rng.choice(known) for _ in range(count)]

    def pair(number: int) -> _Pair:
        prompt, name = some(6), f"request-{number}"
        beside, alone = (of.sequence(prompt, request_id=name, **request) for of in (first, rank()))
        return _Pair(prompt, name, beside, alone)

    pairs = [pair(number) for number in range(4)]
    for _ in range(steps):
        for number, one in enumerate(pairs):
            drafts = some(rng.randint(0, 3) if one.beside.supports_speculation else 0)
            logits = noise.normal(size=(1 + len(drafts), first.vocab_size)).astype(np.float32)
            ahead = third.sequence(one.prompt, request_id=one.name, **request)
            _judge(one, ahead, logits, drafts, f"seed {seed}")
            ahead.release()
            tokens = [*drafts[: rng.randint(0, len(drafts))], *some(1)]
            one.beside.accept(*tokens)
            for token in tokens:
                one.alone.accept(token)
            fate, lost = rng.random(), rng.randint(0, 1)
            for each in (one.beside, one.alone):
                if fate < 0.1:
                    each.release()
                elif fate < 0.3:
                    each.preempt(lost)
            if fate < 0.1:  # another of that name comes
                pairs[number] = pair(number)
    for harness in made:
        harness.close()


def _judge(one: _Pair, ahead: Tested, logits: Logits, drafts: list[int], told: str) -> None:
    rows = one.beside.rows(logits, drafts)
    np.testing.assert_array_equal(one.beside.rows(logits, drafts), rows, f"it moves, {told}")
    np.testing.assert_array_equal(one.alone.rows(logits[:1]), rows[:1], f"alone, {told}")
    for place, given in enumerate([one.beside.tokens, *([draft] for draft in drafts)]):
        if given:
            ahead.accept(*given)
        row = ahead.rows(logits[place : place + 1])
        np.testing.assert_array_equal(row, rows[place : place + 1], f"accepted at once, {told}")

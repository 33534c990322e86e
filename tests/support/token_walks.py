"""Sequences of tokens that repeat themselves, and what becomes of logits on their way, beside a judge."""

import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from guided_engine.processors.dry import DryParams
from guided_engine.testing import Harness

Logits = npt.NDArray[np.float32]
# The prompt, what came after it, and one row of logits: that row as it has to be.
Judge = Callable[[list[int], list[int], Logits], Logits]


def dry(params: DryParams, breakers: Collection[int] = ()) -> Judge:
    """Return DRY as it is described: of each earlier place that ends as the text ends, the token after it."""

    def judge(prompt: list[int], output: list[int], logits: Logits) -> Logits:
        text = [*prompt, *output][-params.last_n :]
        longest: dict[int, int] = {}
        for end in range(len(text) - 1):
            alike = 0
            while alike <= end and text[end - alike] == text[-1 - alike] and text[-1 - alike] not in breakers:
                alike += 1
            after = text[end + 1]
            if alike >= params.allowed_length and after not in breakers:
                longest[after] = max(longest.get(after, 0), min(alike, params.longest_match))
        for token, length in longest.items():
            penalty = params.multiplier * params.base ** (length - params.allowed_length)
            logits[token] -= np.float32(min(penalty, 1e30))
        return logits

    return judge


def repetitive(rng: random.Random, count: int, alphabet: int, past: list[int] | None = None) -> list[int]:
    """Return tokens below `alphabet`; about every second is one of a run that was there before."""
    tokens = list(past or [])
    known = len(tokens)
    while len(tokens) < known + count:
        if tokens and rng.random() < 0.3:
            at = rng.randrange(len(tokens))
            tokens += tokens[at : at + rng.randint(1, 12)]
        else:
            tokens.append(rng.randrange(alphabet))
    return tokens[known : known + count]


def logits_of(noise: np.random.Generator, rows: int, columns: int, *, is_bfloat16: bool) -> Logits:
    """Return float32 logits, the lower half of whose bits is zero where they were bfloat16."""
    drawn = (5 * noise.normal(size=(rows, columns))).astype(np.float32)
    return (drawn.view(np.uint32) & 0xFFFF0000).view(np.float32) if is_bfloat16 else drawn


def walk(harness: Harness, judge: Judge, *, seed: int, alphabet: int, **request: Any) -> int:
    """Compare rows, of three choices of one prompt, with the judge's; return how many have changed.

    Drafts are right, wrong, or right at first; in between, choices are preempted.
    """
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    prompt = repetitive(rng, rng.randint(0, 40), alphabet)
    sequences = [harness.sequence(prompt, **request) for _ in range(3)]
    changed = 0
    for step in range(25):
        for sequence in sequences:
            drafts = repetitive(rng, rng.randint(0, 4), alphabet, [*prompt, *sequence.tokens])
            logits = logits_of(noise, 1 + len(drafts), harness.vocab_size, is_bfloat16=bool(step % 2))
            rows = sequence.rows(logits, drafts)
            for row, given in enumerate(logits):
                output = [*sequence.tokens, *drafts[:row]]
                wanted = judge(prompt, output, given.copy())
                np.testing.assert_array_equal(rows[row], wanted, f"seed {seed}, step {step}, row {row}")
                changed += bool((wanted != given).any())
            kept = drafts[: rng.randint(0, len(drafts))]
            past = [*prompt, *sequence.tokens, *kept]
            sequence.accept(*kept, *repetitive(rng, rng.choice([1, 1, 1, 20]), alphabet, past))
            if rng.random() < 0.1:
                sequence.preempt(rng.randint(0, 1))
    return changed

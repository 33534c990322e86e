"""Tokens that vLLM's own rejection sampler draws under a rank's masks, V2's by Triton's interpreter.

Run as `python -m support.drafts_on_device SEED`. Prints a JSON list per way of drafting: how far the drawn
pairs of tokens are from what the model would give under the grammar without drafts (below 1: not far), how
far they are from another temperature's, and how many drafts were forbidden and accepted.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401 - a CPU's memory counts as pinned
from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils
from vllm.v1.worker.gpu.structured_outputs import grammar_invalid_drafts

from guided_engine.ranks.step import Masks
from support import chi_square
from support.rank import VOCAB, Rank, allowed, arrival

# What may follow depends on what came before, so that drafts after an allowed one are forbidden.
FOLLOWS = {"a": "bcd", "b": "cde", "c": "ab", "d": "ab", "e": "ab"}
PATTERN = f"x({'|'.join(f'{first}[{then}]' for first, then in FOLLOWS.items())})[a-e]{{9}}"
LETTERS = list(map(ord, FOLLOWS))
FIRST = ord("x")
PROMPT = 3
DRAFTS = 3
BATCH = 16
BATCHES = 16
ALPHA = 1e-4


class Model:
    """A target and a drafter whose next token depends on the last one alone."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.target = np.full((VOCAB, VOCAB), -30, np.float32)
        self.drafter = self.target.copy()
        self.target[:, LETTERS] = rng.normal(size=(VOCAB, len(LETTERS)))
        self.drafter[:, LETTERS] = self.target[:, LETTERS] + rng.normal(size=(VOCAB, len(LETTERS)))

    def drafts(self, last: int) -> list[int]:
        """Return drafts after a token, with no regard to a grammar."""
        made: list[int] = []
        for _ in range(DRAFTS):
            odds = np.exp(self.drafter[[last, *made][-1]].astype(float))
            made.append(int(self.rng.choice(VOCAB, p=odds / odds.sum())))
        return made


def masked(logits: np.ndarray, masks: Masks, names: list[str]) -> None:
    """Mask rows in place, of which each request has one per draft and one more."""
    for index, name in enumerate(masks.request_ids):
        for place in range(1 + DRAFTS):
            row = names.index(name) * (1 + DRAFTS) + place
            kept = allowed(masks, index * (1 + DRAFTS) + place)
            values = logits[row, kept]
            logits[row] = -np.inf
            logits[row, kept] = values


def step(
    model: Model, rank: Rank, texts: dict[str, list[int]], seeds: Any, *, has_odds: bool
) -> tuple[int, int]:
    """Verify new drafts of all requests, add what was sampled; return how many were forbidden, accepted."""
    names = list(texts)
    drafts = {name: model.drafts(texts[name][-1]) for name in names}
    computed = {name: PROMPT + len(text) - 1 for name, text in texts.items()}
    masks = rank.step(computed=computed, scheduled=dict.fromkeys(names, 1 + DRAFTS), drafts=drafts)
    assert masks is not None
    forbidden = sum(rank.guide.invalid_drafts.values())
    before = np.array([[texts[name][-1], *drafts[name]] for name in names])
    logits = model.target[before.ravel()].copy()
    masked(logits, masks, names)
    rows = 1 + DRAFTS
    slots = torch.arange(len(names), dtype=torch.int32)
    places = torch.arange(rows, dtype=torch.int32).repeat(len(names))
    bounds = torch.arange(len(names) + 1, dtype=torch.int32) * rows
    batch = SimpleNamespace(
        req_ids=names,
        num_reqs=len(names),
        num_draft_tokens=DRAFTS * len(names),
        num_draft_tokens_per_req=np.full(len(names), DRAFTS),
        expanded_local_pos=places,
        cu_num_logits=bounds,
    )
    proposed = torch.from_numpy(before.ravel()).to(torch.int32)
    invalid = grammar_invalid_drafts(batch, masks.request_ids, masks.acceptable)  # type: ignore[arg-type]
    if invalid is not None:
        proposed = proposed.masked_fill(invalid, -1)
    sampled, counts = rejection_sampler_utils.rejection_sample(
        torch.from_numpy(logits),
        torch.from_numpy(model.drafter[before[:, :DRAFTS]]) if has_odds else None,
        proposed,
        bounds,
        torch.tensor([computed[name] + place for name in names for place in range(rows)]),
        slots,
        slots.repeat_interleave(rows),
        places,
        torch.ones(len(names)),
        seeds,
        DRAFTS,
    )
    given = {
        name: row[:count] for name, row, count in zip(names, sampled.tolist(), counts.tolist(), strict=True)
    }
    assert rank.sampled(**given) == {}
    for name in names:
        texts[name] += given[name]
    return forbidden, int(counts.sum()) - len(names)


def expected(model: Model, temperature: float) -> dict[tuple[int, int], float]:
    """Return the odds of each pair of tokens after the first, without drafts."""
    starts = dict(enumerate(model.target[FIRST].tolist()))
    pairs = {}
    for first, odds in chi_square.tempered(starts, map(ord, FOLLOWS), temperature).items():
        then = dict(enumerate(model.target[first].tolist()))
        for second, share in chi_square.tempered(then, map(ord, FOLLOWS[chr(first)]), temperature).items():
            pairs[first, second] = odds * share
    return pairs


def main(seed: int, *, has_odds: bool) -> list[float]:
    rng = np.random.default_rng(seed)
    model = Model(rng)
    pairs, forbidden, taken = [], 0, 0
    rank = Rank()
    ticket = rank.load(PATTERN)
    for number in range(BATCHES):
        names = [f"{number}-{index}" for index in range(BATCH)]
        rank.step([arrival(name, ticket) for name in names])
        assert rank.sampled(**{name: [FIRST] for name in names}) == {}
        texts = {name: [FIRST] for name in names}
        seeds = torch.from_numpy(rng.integers(1 << 31, size=BATCH))
        while min(map(len, texts.values())) < 3:
            refused, accepted = step(model, rank, texts, seeds, has_odds=has_odds)
            forbidden, taken = forbidden + refused, taken + accepted
        rank.step(finished=names)
        pairs += [(text[1], text[2]) for text in texts.values()]
    right, other = (expected(model, temperature) for temperature in (1.0, 2.0))
    return [
        chi_square.excess(pairs, right, ALPHA),  # type: ignore[arg-type]
        chi_square.excess(pairs, other, ALPHA),  # type: ignore[arg-type]
        forbidden,
        taken,
    ]


if __name__ == "__main__":
    for odds in (False, True):
        sys.stdout.write(json.dumps(main(int(sys.argv[1]), has_odds=odds)) + "\n")

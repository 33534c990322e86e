"""`make soak-speculation`: drawn requests through engines that speculate, as the matrix compares them.

Each seed names a method and a number of draft tokens, in turn, and draws requests and the room of the cache.
They go, at temperature 0, on Model Runner V2, to our engine in async and in sync, and to upstream's, sync and
without speculation. Tokens have to be equal; those with a logits processor, which upstream has not, have to
be the processor's own choice of the model's logits, and end in async as in sync. Proposed, accepted and
forbidden drafts have to be equal by position between async and sync, but for requests with a stop string, and
those that were preempted or came near to max_model_len, where async has less room, as it counts drafts that
are not verified yet. Then some are asked again, streamed, among others that are aborted, in steps of drawn
sizes that leave drafts out: their tokens have to be the same. Ends with 1 if anything differs, or a seed
missed what it was to meet, and says what asks it again.

DURATION=30m   how long; a seed that has begun is finished
SEED=7         the first seed; else drawn, and printed
"""

import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from devtools import tinymodel

from support import matrix, matrix_drafts, matrix_process
from support.matrix import Cell
from support.matrix_drawn import DOOMED, FEW, Drawn, drawn
from support.matrix_engine import MAX_MODEL_LEN
from support.matrix_grammars import Grammars
from support.matrix_processors import References
from support.soak.__main__ import say, seconds

PROGRAM = "support.matrix_drawn"
STEP_TOKENS = 4096  # for all prompts and drafts at once
# On Model Runner V2, as vLLM has it where it may; V1 with a draft model is what `make soak` asks.
CELLS = [
    Cell("V2", 1, method, is_async=True, num_drafts=number)
    for number in (3, 1, 7)
    for method in ("draft", "mtp", "ngram_gpu", "eagle3")
]


def main() -> int:
    duration_s = seconds(os.environ.get("DURATION") or "30m")
    first = int(os.environ.get("SEED") or random.randrange(10**6))
    say(f"soak-speculation: SEED={first}")
    references = References(Grammars())
    unequal = []
    begin = time.monotonic()
    for seed in itertools.count(first):
        cell = CELLS[seed % len(CELLS)]
        found = differences(cell, seed, references)
        for one in found:
            say(f"DIFFERS {one}")
        if found:
            unequal.append(seed)
        if time.monotonic() - begin >= duration_s:
            break
    for seed in unequal:
        say(f"`make soak-speculation DURATION=1s SEED={seed}` asks it again")
    say(f"{seed - first + 1} seeds asked, {len(unequal)} with differences")
    return int(bool(unequal))


def differences(cell: Cell, seed: int, references: References) -> list[str]:
    """Ask a seed's requests of three engines; print a line, and return what differs."""
    chosen = drawn(seed)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            upstream, sync, ours = answers(cell, seed, chosen, Path(folder))
    except AssertionError as error:  # an engine's end
        return [str(error)]
    found: list[str] = []
    for name, one in (("async", ours), ("sync", sync)):
        found += [f"{name}: {each}" for each in unlike(chosen, one, upstream, references)]
    found += missed(chosen, ours)  # the sync engine may find room for all drafts that a grammar leaves
    found += unalike(chosen, ours, sync)
    counts, told = compared(chosen, cell.num_drafts, ours["drafts"], sync["drafts"])
    found += counts
    told += f"; {ours['cut']} and {sync['cut']} steps left drafts out"
    say(f"{seed} {cell.name} {chosen.backend}, {told}, {time.monotonic() - began:.0f} s: {len(found)} differ")
    return found


def answers(cell: Cell, seed: int, chosen: Drawn, folder: Path) -> list[dict[str, Any]]:
    """Return what upstream, our synchronous and our asynchronous engine gave."""
    given = []
    for name, one in (("upstream", None), ("sync", replace(cell, is_async=False)), ("async", cell)):
        place = folder / name
        place.mkdir()
        if one is None:
            model = str(tinymodel.models() / "tiny")
            job = matrix_process.Job(answer=str(place / "answer.json"), model=model)
        else:
            job = matrix.rank_job(one, place)
            room = {"num_gpu_blocks_override": chosen.blocks, "max_num_batched_tokens": STEP_TOKENS}
            job = msgspec.structs.replace(job, arguments={**job.arguments, **room})
        runner = cell.runner if one is None else one.runner
        given.append(matrix_process.start(msgspec.structs.replace(job, drawn=seed), runner, place, PROGRAM))
    return given


def unlike(
    chosen: Drawn, ours: dict[str, Any], upstream: dict[str, Any], references: References
) -> list[str]:
    """Return which tokens differ from upstream's, or are not what a processor chooses."""
    found = []
    for at, (request, names) in enumerate(zip(chosen.requests, chosen.processors, strict=True)):
        given, wanted = ours["answers"][at], upstream["answers"][at]
        if names and (wrong := references.unlike(request, given[0], names)):
            found.append(f"request {at} with {names}: (place, token, reference's) {wrong}: {request}")
        elif not names and given != wanted:
            found.append(f"request {at}: {given}, not {wanted}: {request}")
    alone = [ours["answers"][at] for at in chosen.live]
    if ours["live"] != alone:
        found.append(f"among aborted requests: {ours['live']}, not {alone}")
    if ours["again"] != [alone[at % len(alone)] for at in range(DOOMED)]:
        found.append(f"under an aborted request's name: {ours['again']}, not of {alone}")
    return found


def unalike(chosen: Drawn, ours: dict[str, Any], sync: dict[str, Any]) -> list[str]:
    """Return which requests with processors had other tokens, or another end, in async than in sync."""
    found = []
    for at, names in enumerate(chosen.processors):
        a, b = (one["answers"][at] for one in (ours, sync))
        if names and a != b:
            found.append(f"request {at} with {names}: async {a}, sync {b}: {chosen.requests[at]}")
    return found


def missed(chosen: Drawn, ours: dict[str, Any]) -> list[str]:
    """Return what an engine did not meet that the seed has in store for each."""
    met = {
        "step left drafts out": ours["cut"],
        "request reached max_model_len": ours["drafts"][-1]["tokens"] == MAX_MODEL_LEN,
        "request was preempted": chosen.blocks != FEW or any(one["preempted"] for one in ours["drafts"]),
    }
    return [f"no {what}" for what, number in met.items() if not number]


def compared(chosen: Drawn, places: int, *both: list[matrix_drafts.Drafts]) -> tuple[list[str], str]:
    """Return which requests' counts by position differ between async and sync, and what was compared."""
    found = []
    total: Counter[tuple[str, int]] = Counter()
    lasted = [
        (at, *pair)
        for at, pair in enumerate(zip(*both, strict=True))
        # A stop string is found in front of the engine, which goes on for some steps more.
        if "stop" not in chosen.requests[at].params
        and not any(one["preempted"] or one["tokens"] > MAX_MODEL_LEN - 2 * (1 + places) for one in pair)
    ]
    for at, ours, sync in lasted:
        a, b = (matrix_drafts.by_position(one, places) for one in (ours, sync))
        if a != b:
            found.append(f"drafts of request {at}, async {a}, sync {b}: {chosen.requests[at]}")
        for name, counts in a.items():
            total.update({(name, place): count for place, count in enumerate(counts)})
    if lasted and not total["proposed", 0]:
        found.append("no draft was proposed, or none was counted: there was nothing to compare")
    names = ("proposed", "accepted", "forbidden")
    told = ", ".join(f"{name} {[total[name, place] for place in range(places)]}" for name in names)
    left_out = len(chosen.requests) - len(lasted)
    return found, f"{len(lasted)} requests by position ({left_out} left out): {told}"


if __name__ == "__main__":
    sys.exit(main())

"""Requests at temperature 1 in one engine of the matrix, and whether two engines' drafts fared alike.

Each request has its seed, by which an engine draws the same in each run. Two engines of one model runner draw
the same, too; of different ones they do not, and then counts may differ by chance. So the bound is for
independent draws: each position's counts are compared by Fisher's exact test, at BY_CHANCE for all together.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from devtools.tinytasks import TOPICS, task

from guided_contract import wire
from support import matrix_drafts
from support.matrix import is_full
from support.matrix_drafts import Drafts
from support.matrix_engine import outputs
from support.matrix_requests import Request

BY_CHANCE: Final = 1e-4  # how often engines that draft alike are told to differ, at most
SEED: Final = 20
AT_ONCE: Final = 7  # whose two blocks each the cache of a cell has: none is preempted


def warm() -> dict[str, list[Request]]:
    """Return what is asked at temperature 1."""
    tasks = {"unguided": ("story",), "guided": ("person", "card", "order")}
    return {
        name: [
            Request(
                one.prompt(topic),
                one.kind,
                one.spec,
                48,
                {"temperature": 1.0, "seed": SEED + at, "ignore_eos": one.kind == "none"},
            )
            for at, (one, topic) in enumerate(itertools.product(map(task, names), TOPICS))
        ]
        for name, names in tasks.items()
    }


def is_asked(method: str) -> bool:
    """Return whether engines with this method are asked, for half a minute: heads, and in full all."""
    return is_full() or method.startswith("eagle3")


def drafted(llm: Any, requests: Sequence[Request], tickets: Mapping[str, wire.Ticket]) -> list[Drafts]:
    """Return the drafts of each request, asked a few at a time."""
    found: list[Drafts] = []
    for first in range(0, len(requests), AT_ONCE):
        found += matrix_drafts.counted(llm, outputs(llm, requests[first : first + AT_ONCE], tickets))
    return found


def totals(requests: Sequence[Drafts]) -> dict[str, list[int]]:
    """Return the sums of requests' counts by position, and beside each how many tokens they generated.

    What a grammar forbids is not proposed (docs/speculation.md): `made` is both.
    """
    counts = [matrix_drafts.by_position(one) for one in requests]
    found = {name: [sum(of) for of in zip(*(one[name] for one in counts), strict=True)] for name in counts[0]}
    found["made"] = [sum(both) for both in zip(found["proposed"], found["forbidden"], strict=True)]
    return found | {"tokens": [sum(one["generated"] for one in requests)] * len(found["proposed"])}


def unlike(ours: Mapping[str, Sequence[int]], theirs: Mapping[str, Sequence[int]]) -> list[str]:
    """Return where two engines' totals differ by more than independent draws would.

    Of each position: how often it was proposed per token, what share of that was accepted, and what share of
    all that were made is forbidden.
    """
    parts = [("proposed", "tokens"), ("accepted", "proposed"), ("forbidden", "made")]
    compared = list(itertools.product(parts, range(len(ours["proposed"]))))
    found = []
    for (part, whole), place in compared:
        a, b = ((one[part][place], one[whole][place]) for one in (ours, theirs))
        if (odds := alike(*a, *b)) < BY_CHANCE / len(compared):
            found.append(f"{part} at position {place}: {a[0]} of {a[1]}, {b[0]} of {b[1]} (p {odds:.1e})")
    return found


def alike(part: int, whole: int, other: int, of: int) -> float:
    """Return how likely shares at least as different are, if both are draws of one (Fisher, two-sided)."""
    both = part + other
    first = max(0, both - of)
    ways = [math.comb(whole, first) * math.comb(of, both - first)]
    for one in range(first, min(both, whole)):
        ways.append(ways[-1] * (whole - one) * (both - one) // ((one + 1) * (of - both + one + 1)))
    return sum(way for way in ways if way <= ways[part - first]) / sum(ways)

"""`make fuzz-schemas`: drawn schemas through our whole path, and what comes out of it judged by jsonschema.

SECONDS=60     for how long
SEED=0         of the first schema; the next has the next number
DOCUMENTS=     a folder of others' archives (of `npm pack`, wheels) or JSON files: all of their schemas
               instead of drawn ones, and a line for each that no library serves

Each schema is compiled by our path for each library alone, without a proof, since nothing may rest on that.
Random texts are walked through its rank's matchers, from nothing and from beginnings of drawn values; drawn
values and those near to a text, spelt in many ways, are offered to it. An invalid text that is finished is
a failure, and so is a text that one library takes of a schema and the other does not. Ends with 1 then.
"""

import functools
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from support.compositions import documents
from support.compositions.attempt import Attempt, Finding, Outcome
from support.compositions.children import outcome
from support.compositions.libraries import Compilers
from support.compositions.shrinking import shrunk


def main() -> int:
    """Fuzz for a while, print what is found, and return 1 where something is."""
    seed = int(os.environ.get("SEED") or 0)
    folder = os.environ.get("DOCUMENTS")
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    number = seed - 1
    attempt = Attempt(Compilers())
    for number, work in _drawn(attempt, seed) if folder is None else _of_others(attempt, Path(folder), seed):
        found = outcome(work)
        counts.update(found.counts)
        if folder and not found.counts["served"]:
            _say(f"fuzz-schemas: {number} is not served: {found.refusals or dict(found.counts)}")
        for finding in found.findings:
            smaller = outcome(lambda finding=finding: shrunk(attempt, finding), limit_s=60)
            findings.append(smaller if isinstance(smaller, Finding) else finding)
            _say(findings[-1].shown(number))
    _say(f"fuzz-schemas: {dict(sorted(counts.items()))}")
    _say(f"fuzz-schemas: seeds {seed} to {number}, and {len(findings)} findings")
    return 1 if findings else 0


def _drawn(attempt: Attempt, seed: int) -> Iterator[tuple[int, Callable[[], Outcome]]]:
    until = time.monotonic() + float(os.environ.get("SECONDS_EACH") or 60)
    for number in itertools.count(seed):
        if time.monotonic() >= until:
            return
        yield number, functools.partial(attempt.of, number)


def _of_others(attempt: Attempt, folder: Path, seed: int) -> Iterator[tuple[int, Callable[[], Outcome]]]:
    for number, schema in list(enumerate(documents.drawn(folder)))[seed:]:
        yield number, functools.partial(attempt.tried, schema, random.Random(f"compositions {number}"))


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program's answer


if __name__ == "__main__":
    sys.exit(main())

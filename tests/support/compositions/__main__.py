"""`make fuzz-schemas`: drawn schemas through our whole path, and what comes out of it judged by jsonschema.

SECONDS=60     for how long
SEED=0         of the first schema; the next has the next number

Each schema is compiled by our path for each library alone, without a proof, since nothing may rest on that.
Random texts are walked through its rank's matchers, from nothing and from beginnings of drawn values; drawn
values and those near to a text, spelt in many ways, are offered to it. An invalid text that is finished is
a failure, and so is a refusal for want of a value where there is one. Ends with 1 then.
"""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from guided_contract.errors import GuidedError
from guided_contract.wire import Backend
from support.compositions import schemas, told_apart, values
from support.compositions.judge import Judge, UnknownError
from support.compositions.libraries import LIBRARIES, Compilers, DeadEndError, Grammar

_LIMIT_S: Final = 10.0  # what takes longer is counted, not judged
_LOOKED_AT: Final = [json.dumps(one, ensure_ascii=False) for one in told_apart.values()]
_REFUSALS: Final = ("grammar_dead_end", "grammar_invalid", "grammar_too_large", "grammar_unsupported")
_compilers: Compilers


def main() -> int:
    """Fuzz for a while, print what is found, and return 1 where something is."""
    global _compilers  # noqa: PLW0603 - the children's, too, which are forks
    _compilers = Compilers()
    seed = int(os.environ.get("SEED") or 0)
    until = time.monotonic() + float(os.environ.get("SECONDS_EACH") or 60)
    counts: Counter[str] = Counter()
    findings = 0
    context = multiprocessing.get_context("fork")
    child = context.Pool(1)  # which may crash or hang
    for number in itertools.count(seed):
        if time.monotonic() >= until:
            break
        try:
            counted, found = child.apply_async(_tried, (number,)).get(_LIMIT_S)
        except multiprocessing.TimeoutError:
            child.terminate()
            child = context.Pool(1)
            counted, found = Counter(["too slow to be looked at"]), []
        counts.update(counted)
        findings += len(found)
        for finding in found:
            _say(f"SEED={number}: {finding}")
    child.terminate()
    _say(f"{dict(sorted(counts.items()))}")
    _say(f"seeds {seed} to {number}, and {findings} findings")
    return 1 if findings else 0


def _tried(number: int) -> tuple[Counter[str], list[str]]:
    """Draw the schema of a number, and try it; return counts and what is wrong."""
    chance = random.Random(f"compositions {number}")
    schema = told_apart.schema(chance) if number % 2 else schemas.schema(chance)
    judge = Judge(schema)
    counts: Counter[str] = Counter()
    faults = (_fault(schema, judge, chance, counts, backend) for backend in LIBRARIES)
    return counts, [f"{fault}\n  {json.dumps(schema)}" for fault in faults if fault]


def _fault(
    schema: Any, judge: Judge, chance: random.Random, counts: Counter[str], backend: Backend
) -> str | None:
    """Return what is wrong with what one library makes of a schema."""
    try:
        grammar = _compilers.compiled(schema, backend)
    except GuidedError as error:
        counts[f"refused by {backend}: {error.code.value}"] += 1
        if error.code not in _REFUSALS:
            raise
        met = judge.met(_LOOKED_AT) if error.code == "grammar_dead_end" else None
        return None if met is None else f"{backend} calls it a dead end, and {met!r} is valid"
    counts[f"served by {backend}"] += 1
    texts = [text for text in _walked(grammar, chance, counts) if text is not None]
    offered = [*texts, *_offered(chance, texts, schema), *chance.sample(_LOOKED_AT, 60)]
    for text in filter(grammar.accepts, offered):
        counts["texts taken"] += 1
        with contextlib.suppress(UnknownError):
            if (fault := judge.fault(text)) is not None:
                return f"{backend} takes {text!r}: {fault}"
    return None


def _walked(grammar: Grammar, chance: random.Random, counts: Counter[str]) -> Iterator[str | None]:
    for walk in range(8):
        start = values.spelt(chance, values.value(chance, 2, values.NAMES[:6])) if walk % 2 else ""
        try:
            yield grammar.walked(chance, start)
        except DeadEndError:
            counts["dead ends"] += 1
            return


def _offered(chance: random.Random, texts: list[str], schema: Any) -> Iterator[str]:
    """Yield texts of drawn values, and of those near to what was generated."""
    names = sorted(name for name in values.NAMES if json.dumps(name) in json.dumps(schema)) or ["a"]
    for _ in range(30):
        yield values.spelt(chance, values.value(chance, 3, names))
    for text in texts:
        with contextlib.suppress(ValueError):
            value = json.loads(text)
            yield values.spelt(chance, value)
            for _ in range(6):
                yield values.spelt(chance, values.near(chance, value, names))


def _say(line: str) -> None:
    print(f"fuzz-schemas: {line}", flush=True)  # noqa: T201 - a program's answer


if __name__ == "__main__":
    sys.exit(main())

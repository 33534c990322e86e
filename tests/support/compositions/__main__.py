"""`make fuzz-schemas`: drawn schemas through our whole path, and what comes out of it judged by jsonschema.

SECONDS=60     for how long
SEED=0         of the first schema; the next has the next number

Each schema is compiled by our path for each library alone, without a proof, since nothing may rest on that.
Random texts are walked through its rank's matchers, from nothing and from beginnings of drawn values; drawn
values and those near to a text, spelt in many ways, are offered to it. An invalid text that is finished is
a failure, and so is a refusal for want of a value where there is one. Ends with 1 then.
"""

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
from support.compositions import schemas, told_apart, values
from support.compositions.judge import Judge, UnknownError
from support.compositions.libraries import LIBRARIES, Compilers, DeadEndError, Grammar

_LIMIT_S: Final = 10.0  # what takes longer is counted, not judged
_WALKS: Final = 8
_VALUES: Final = 30
_SMALL: Final = 60  # of those that told_apart lists
_NEAR: Final = 6  # values near to each text that was taken
_LOOKED_AT: Final = [json.dumps(one, ensure_ascii=False) for one in told_apart.values()]
_REFUSALS: Final = ("grammar_dead_end", "grammar_invalid", "grammar_too_large", "grammar_unsupported")


def main() -> int:
    """Fuzz for a while, print what is found, and return 1 where something is."""
    seed = int(os.environ.get("SEED") or 0)
    until = time.monotonic() + float(os.environ.get("SECONDS_EACH") or 60)
    counts: Counter[str] = Counter()
    findings = 0
    tried = Tried(Compilers())
    context = multiprocessing.get_context("fork")
    child = context.Pool(1, _take, (tried,))  # which may crash or hang
    for number in itertools.count(seed):
        if time.monotonic() >= until:
            break
        try:
            counted, found = child.apply_async(_of, (number,)).get(_LIMIT_S)
        except multiprocessing.TimeoutError:
            child.terminate()
            child = context.Pool(1, _take, (tried,))
            counted, found = Counter(["too slow to be looked at"]), []
        counts.update(counted)
        findings += len(found)
        for finding in found:
            _say(f"fuzz-schemas: SEED={number}: {finding}")
    child.terminate()
    _say(f"fuzz-schemas: {dict(sorted(counts.items()))}")
    _say(f"fuzz-schemas: seeds {seed} to {number}, and {findings} findings")
    return 1 if findings else 0


class Tried:
    """Tries schemas, and says what is wrong with what comes of them."""

    def __init__(self, compilers: Compilers) -> None:
        self._compilers = compilers

    def of(self, number: int) -> tuple[Counter[str], list[str]]:
        """Draw the schema of a number, and try it; return counts and what is wrong."""
        chance = random.Random(f"compositions {number}")
        schema = told_apart.schema(chance) if number % 2 else schemas.schema(chance)
        judge = Judge(schema)
        counts: Counter[str] = Counter()
        wrong: list[str] = []
        for backend in LIBRARIES:
            try:
                grammar = self._compilers.compiled(schema, backend)
            except GuidedError as error:
                counts[f"refused by {backend}: {error.code.value}"] += 1
                if error.code not in _REFUSALS:
                    raise
                if error.code == "grammar_dead_end" and (text := judge.met(_LOOKED_AT)) is not None:
                    wrong.append(
                        f"{backend} calls it a dead end, and {text!r} is valid\n  {json.dumps(schema)}"
                    )
                continue
            counts[f"served by {backend}"] += 1
            texts = [text for text in _walked(grammar, chance, counts) if text is not None]
            offered = [*texts, *_offered(chance, texts, schema), *chance.sample(_LOOKED_AT, _SMALL)]
            for text in filter(grammar.accepts, offered):
                counts["texts taken"] += 1
                try:
                    fault = judge.fault(text)
                except UnknownError:
                    continue
                if fault is not None:
                    wrong.append(f"{backend} takes {text!r}: {fault}\n  {json.dumps(schema)}")
                    break
        return counts, wrong


_tried: Tried


def _take(tried: Tried) -> None:
    global _tried  # noqa: PLW0603 - the child's own
    _tried = tried


def _of(number: int) -> tuple[Counter[str], list[str]]:
    return _tried.of(number)


def _walked(grammar: Grammar, chance: random.Random, counts: Counter[str]) -> Iterator[str | None]:
    for walk in range(_WALKS):
        start = values.spelt(chance, values.value(chance, 2, values.NAMES[:6])) if walk % 2 else ""
        try:
            yield grammar.walked(chance, start)
        except DeadEndError:
            counts["dead ends"] += 1
            return


def _offered(chance: random.Random, texts: list[str], schema: Any) -> Iterator[str]:
    """Yield texts of drawn values, and of those near to what was generated."""
    names = sorted(_names(schema)) or ["a"]
    for _ in range(_VALUES):
        yield values.spelt(chance, values.value(chance, 3, names))
    for text in texts:
        try:
            value = json.loads(text)
        except ValueError:
            continue
        yield values.spelt(chance, value)
        for _ in range(_NEAR):
            yield values.spelt(chance, values.near(chance, value, names))


def _names(schema: Any) -> set[str]:
    """Return the names of properties in a schema."""
    found: set[str] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            found.update(part.get("properties", ()) if isinstance(part.get("properties"), dict) else ())
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return found


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program's answer


if __name__ == "__main__":
    sys.exit(main())

"""One drawn schema: compiled, walked, offered values, and what is wrong with what came of it."""

import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from guided_contract.errors import GuidedError
from guided_contract.wire import Backend
from support.compositions import schemas, told_apart, values
from support.compositions.judge import Judge, UnknownError
from support.compositions.libraries import LIBRARIES, Compilers, DeadEndError, Grammar

_WALKS: Final = 8
_VALUES: Final = 30
_SMALL: Final = 60  # of those that told_apart lists
_NEAR: Final = 6  # values near to each text that was taken
_DEAD_END: Final = "grammar_dead_end"
_LOOKED_AT: Final = [json.dumps(one, ensure_ascii=False) for one in told_apart.values()]
_REFUSALS: Final = (_DEAD_END, "grammar_invalid", "grammar_too_large", "grammar_unsupported")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong.

    Attributes
    ----------
    kind
        `invalid`: a finished text is; `differs`: one library takes what the other does not; `dead end`: the
        refusal says that no value satisfies the schema, and one does.
    """

    kind: str
    backend: Backend
    schema: Any
    text: str
    reason: str

    def shown(self, number: int) -> str:
        """Return it in words, with the seed by which it is seen again."""
        return (
            f"fuzz-schemas: {self.kind}, {self.backend}: SEED={number}\n  {json.dumps(self.schema)}\n"
            f"  {self.text!r}\n  {self.reason}"
        )


@dataclass(slots=True)
class Outcome:
    """What came of one schema; `refusals`: the words of those that refused it."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


class Attempt:
    """Tries schemas."""

    def __init__(self, compilers: Compilers) -> None:
        self._compilers = compilers

    def of(self, number: int) -> Outcome:
        """Draw the schema of a number, and try it."""
        chance = random.Random(f"compositions {number}")
        drawn = told_apart.schema(chance) if number % 2 else schemas.schema(chance)
        return self.tried(drawn, chance)

    def tried(self, schema: Any, chance: random.Random) -> Outcome:
        """Try a schema."""
        found = Outcome()
        judge = Judge(schema)
        grammars = list(self._grammars(schema, found, judge))
        found.counts["served" if grammars else "refused"] += 1
        if not grammars:
            return found
        texts: dict[str, None] = {}
        for grammar in grammars:
            self._walk(grammar, chance, texts, found)
        names = sorted(_names(schema)) or ["a"]
        texts |= dict.fromkeys(_offered(chance, list(texts), names))
        for text in (*texts, *chance.sample(_LOOKED_AT, _SMALL)):
            self._look(schema, grammars, judge, text, found)
            if len(found.findings) > 1:
                break
        return found

    def is_still(self, finding: Finding, schema: Any) -> bool:
        """Return whether a finding holds of another schema, too."""
        try:
            fault = Judge(schema).fault(finding.text)
            if finding.kind == "dead end":
                return fault is None and self._refusal(schema, finding.backend) == _DEAD_END
            if finding.kind == "invalid":
                grammar = self._compilers.compiled(schema, finding.backend)
                return fault is not None and grammar.accepts(finding.text)
            plain = values.plain(finding.text)
            taken = [any(map(self._compilers.compiled(schema, one).accepts, plain)) for one in LIBRARIES]
        except Exception:  # noqa: BLE001 - whatever another schema brings
            return False
        return len(set(taken)) == 2 and LIBRARIES[taken.index(True)] == finding.backend

    def _refusal(self, schema: Any, backend: Backend) -> str | None:
        try:
            self._compilers.compiled(schema, backend)
        except GuidedError as error:
            return error.code
        return None

    def _grammars(self, schema: Any, found: Outcome, judge: Judge) -> Iterator[Grammar]:
        for backend in LIBRARIES:
            try:
                yield self._compilers.compiled(schema, backend)
            except GuidedError as error:
                found.counts[f"refused by {backend}: {error.code.value}"] += 1
                found.refusals.append(f"{backend}: {error.message}")
                if error.code not in _REFUSALS:
                    raise
                if error.code == _DEAD_END and (text := _valid(judge)) is not None:
                    found.findings.append(Finding("dead end", backend, schema, text, error.message))
            else:
                found.counts[backend] += 1

    def _walk(self, grammar: Grammar, chance: random.Random, texts: dict[str, None], found: Outcome) -> None:
        for walk in range(_WALKS):
            start = values.spelt(chance, values.value(chance, 2, values.NAMES[:6])) if walk % 2 else ""
            try:
                text = grammar.walked(chance, start)
            except DeadEndError:
                found.counts["dead ends"] += 1
                return
            found.counts["walks"] += 1
            if text is not None:
                found.counts["whole texts"] += 1
                texts[text] = None

    def _look(self, schema: Any, grammars: list[Grammar], judge: Judge, text: str, found: Outcome) -> None:
        taken = [grammar.accepts(text) for grammar in grammars]
        try:
            fault = judge.fault(text)
        except UnknownError:
            found.counts["unknown"] += 1
            return
        found.counts[
            f"{'valid' if fault is None else 'invalid'}, {'taken' if any(taken) else 'not taken'}"
        ] += 1
        if fault is not None and any(taken):
            backend = grammars[taken.index(True)].backend
            found.findings.append(Finding("invalid", backend, schema, text, fault))
        elif len(set(taken)) > 1:
            backend = grammars[taken.index(True)].backend
            plain = values.plain(text) if fault is None else []
            is_plain = text in plain and len({any(map(one.accepts, plain)) for one in grammars}) > 1
            found.counts[f"taken by {backend} alone{'' if is_plain else ', spelt oddly'}"] += 1
            if is_plain:
                found.findings.append(
                    Finding("differs", backend, schema, text, "the other library does not take it")
                )


def _valid(judge: Judge) -> str | None:
    """Return a text that meets a schema; None: no value that is looked at does."""
    for text in _LOOKED_AT:
        with contextlib.suppress(UnknownError):
            if judge.fault(text) is None:
                return text
    return None


def _offered(chance: random.Random, texts: list[str], names: list[str]) -> Iterator[str]:
    """Yield texts of drawn values, and of those near to what was generated."""
    for _ in range(_VALUES):
        yield values.spelt(chance, values.value(chance, 3, names))
    for text in texts:
        try:
            value = json.loads(text)
        except ValueError:
            continue
        yield values.spelt(chance, value)
        yield from values.plain(text)[:1]
        for _ in range(_NEAR):
            other = values.near(chance, value, names)
            yield values.spelt(chance, values.near(chance, other, names) if chance.random() < 0.3 else other)


def _names(schema: Any) -> set[str]:
    """Return the names of properties in a schema."""
    found: set[str] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            found.update(part.get("properties", ()) if isinstance(part.get("properties"), dict) else ())
            found.update(one for one in part.get("required", ()) if isinstance(part.get("required"), list))
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return {name for name in found if isinstance(name, str)}

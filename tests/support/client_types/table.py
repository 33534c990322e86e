"""What the sidecar makes of each type, and what a model may then answer: the types of docs/clients.md."""

import decimal
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema
import numpy as np
import pydantic
import regex
from devtools import tinymodel
from schemasuite.subjects import Ours, RefusedError, Words

from guided_contract.errors import GuidedError
from guided_grammar.backend import Threads
from guided_grammar.masks import words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from support.client_types import pydantic_types
from support.soak.walks import Walker

ZOD: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("zod.json").read_text())
BEGIN: Final = "<!-- `make client-table` writes what follows -->"
END: Final = "<!-- until here -->"
BAR: Final = "\\|"
_ENOUGH: Final = 4  # texts, and after so many walks there are as many as there are
_MOST_WALKS: Final = 100
_TITLES: Final = (
    (f"pydantic {pydantic.VERSION}", lambda case: case.parse is not None),
    (f"zod {ZOD['versions']['zod']}, and zod 3 with zod-to-json-schema", lambda case: case.parse is None),
)
# What walks write and no client reads as it was meant: bytes that are no character, numbers beyond floats.
_UNREAD: Final = re.compile(r"\ufffd|\d[eE][+-]?\d{3}")
# jsonschema's own checks of the others ask for packages, know another standard or count days.
_FORMATS: Final = jsonschema.FormatChecker(["email", "ipv4", "ipv6", "uuid"])


class Case(NamedTuple):
    """A type's schema.

    Attributes
    ----------
    texts
        JSON texts that a model must be able to answer.
    parse
        The client's own reading of an answer, which raises; None where it is not here.
    beyond
        As in pydantic_types.Type.
    """

    name: str
    schema: Any
    texts: Sequence[str]
    parse: Callable[[str], Any] | None = None
    beyond: str = ""


class Outcome(NamedTuple):
    """What became of a case.

    Attributes
    ----------
    refused
        The keyword that is not enforced, "" where the schema is served.
    missing
        Texts that a model must be able to answer and is not.
    finished
        How many random texts came to their end.
    faults
        What is wrong with their texts.
    """

    refused: str = ""
    missing: Sequence[str] = ()
    finished: int = 0
    faults: Sequence[str] = ()


def cases() -> Iterator[Case]:
    """Yield pydantic's types, then zod's."""
    for name, one in pydantic_types.TYPES.items():
        adapter = pydantic_types.adapter(one)
        yield Case(name, adapter.json_schema(), pydantic_types.texts(one), _strict(adapter), one.beyond)
    for name, one in ZOD["types"].items():
        yield Case(name, one["schema"], [json.dumps(value, ensure_ascii=False) for value in one["values"]])


class Table:
    """Asks the sidecar's compiler and a rank's matchers, for the tiny model."""

    def __init__(self) -> None:
        model = Words(tinymodel.models() / "tiny")
        known = Backends(model.vocabulary, Threads(compile=2))
        self._ours = Ours(model, known)
        self._model = model
        self._walker = Walker(model.tokenizer, tinymodel.VOCAB)

    def outcome(self, case: Case) -> Outcome:
        """Compile a case's schema, and judge what may be answered by jsonschema and by the client."""
        try:
            matcher = self._ours.matchers(case.schema)
        except RefusedError as refusal:
            return Outcome(_why(refusal))
        missing = [text for text in case.texts if not self._accepts(matcher(), text)]
        chance = np.random.default_rng(sum(case.name.encode()))
        walks = (self._walker.text(_Walked(matcher()), chance) for _ in range(_MOST_WALKS))
        whole = (text for text in walks if text is not None and not _UNREAD.search(text))
        found = [*itertools.islice(whole, _ENOUGH)]
        faults = [fault for text in found if (fault := _fault(case, text))]
        return Outcome("", missing, len(found), faults)

    def _accepts(self, matcher: Matcher, text: str) -> bool:
        return matcher.accept(self._model.tokens(text)) and matcher.is_terminated()


def page(found: Sequence[tuple[Case, Outcome]]) -> str:
    """Return what docs/clients.md says of the types, between its marks."""
    parts = []
    for title, of in _TITLES:
        mine = [(case, outcome) for case, outcome in found if of(case)]
        refused = {case.name: outcome.refused for case, outcome in mine if outcome.refused}
        beyond = {case.name: case.beyond for case, _ in mine if case.beyond and case.name not in refused}
        served = [case.name for case, _ in mine if case.name not in refused | beyond]
        others = "; the others:" if beyond or refused else ", all of them."
        parts += [f"### {title}", f"Served: {len(served)} types of `tests/support/client_types/`{others}"]
        if beyond:
            parts.append(_table("served", "the type asks for more than its schema says", beyond))
        if refused:
            parts.append(_table("refused", "the keyword that is not enforced", refused))
    return "\n\n".join(parts)


def written(text: str, table: str) -> str:
    """Return the page with another table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "docs/clients.md has lost its marks"
    return f"{before}{begin}\n{table}\n{end}{after}"


def _table(first: str, second: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {first} | {second} |", "|---|---|"]
    return "\n".join(
        lines + [f"| {_code(name).replace('|', chr(92) + '|')} | {why} |" for name, why in rows.items()]
    )


def _code(name: str) -> str:
    return f"`{name}`"


class _Walked:
    """A rank's matcher, as the walker asks it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._rows = np.zeros((1, words(tinymodel.VOCAB)), dtype=np.int32)

    def accept(self, token: int) -> bool:
        return self._matcher.accept([token])

    def has_ended(self) -> bool:
        return self._matcher.is_terminated()

    def mask(self) -> Any:
        self._matcher.fill(self._rows, 0)
        return np.unpackbits(self._rows.view(np.uint8), bitorder="little")[: tinymodel.VOCAB]


def _why(refusal: RefusedError) -> str:
    """Return the keyword that a refusal names."""
    error = refusal.__cause__
    assert isinstance(error, GuidedError), refusal
    keyword = str(error.path).rpartition(".")[2]
    return f"`{keyword}`" if error.code == "grammar_unsupported" else f"{error.code}: {error}"


def _strict(adapter: pydantic.TypeAdapter[Any]) -> Callable[[str], Any]:
    return lambda text: adapter.validate_json(text, strict=True)


def _number(text: str) -> int | Decimal:
    """Return a number as jsonschema judges it exactly."""
    value = Decimal(text)
    return int(value) if value == value.to_integral_value() and abs(value) < 1 << 64 else value


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    """Judge by a library that knows properties of characters, as JavaScript and no `re` does."""
    if validator.is_type(instance, "string") and not regex.search(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _fault(case: Case, text: str) -> str:
    """Return what is wrong with a text, "" where nothing is."""
    schema = json.loads(json.dumps(case.schema), parse_float=_number)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        value = json.loads(text, parse_float=_number)
        read = jsonschema.validators.extend(validator, {"pattern": _pattern})
        with decimal.localcontext(prec=1000):  # for the remainders of long numbers
            read(schema, format_checker=_FORMATS).validate(value)
        if case.parse and not case.beyond:
            case.parse(text)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{text}: {str(error)[:300]}"
    return ""

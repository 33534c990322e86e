"""What the sidecar makes of each type, and what a model may then answer: the types of docs/clients.md."""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from guided_contract.errors import GuidedError
from support.client_types import pydantic_types
from support.compositions.judge import Judge
from support.compositions.libraries import Compilers

ZOD: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("zod.json").read_text())
_ENOUGH: Final = 4  # texts, and after so many walks there are as many as there are
_MOST_WALKS: Final = 100
# What walks write and no client reads as it was meant: bytes that are no character, numbers beyond floats,
# symbols of which versions of Unicode say different things.
_UNREAD: Final = re.compile(r"\ufffd|\d[eE][+-]?\d{3}|[\u2600-\u27bf]")


class Case(NamedTuple):
    """A type's schema."""

    name: str
    schema: Any
    texts: Sequence[str]  # of JSON, that a model must be able to answer
    # The client's own reading of an answer, which raises; None where its schema says less or it is none.
    parse: Callable[[str], Any] | None = None


class Outcome(NamedTuple):
    """What became of a case."""

    refused: str = ""  # the keyword that is not enforced, "" where the schema is served
    missing: Sequence[str] = ()  # texts that a model must be able to answer and is not
    finished: int = 0  # how many random texts came to their end
    faults: Sequence[str] = ()  # what is wrong with their texts


def cases() -> Iterator[Case]:
    """Yield pydantic's types, then zod's."""
    for name, one in pydantic_types.TYPES.items():
        adapter = pydantic_types.adapter(one)
        parse = None if one.beyond else (lambda text, of=adapter: of.validate_json(text, strict=True))
        yield Case(name, adapter.json_schema(), pydantic_types.texts(one), parse)
    for name, one in ZOD["types"].items():
        yield Case(name, one["schema"], [json.dumps(value, ensure_ascii=False) for value in one["values"]])


def outcome(compilers: Compilers, case: Case) -> Outcome:
    """Compile a case's schema, and judge what may be answered by jsonschema and by the client."""
    try:
        grammar = compilers.served(case.schema)
    except GuidedError as error:
        return Outcome(
            str(error.path).rpartition(".")[2] if error.code == "grammar_unsupported" else str(error)
        )
    missing = [text for text in case.texts if not grammar.accepts(text)]
    chance = random.Random(case.name)
    walks = (grammar.walked(chance) for _ in range(_MOST_WALKS))
    whole = (text for text in walks if text is not None and not _UNREAD.search(text))
    found = [*itertools.islice(whole, _ENOUGH)]
    return Outcome("", missing, len(found), [fault for text in found if (fault := _fault(case, text))])


def _fault(case: Case, text: str) -> str:
    """Return what is wrong with a text, "" where nothing is."""
    if fault := Judge(case.schema).fault(text):
        return f"{text}: {fault}"
    try:
        if case.parse is not None:
            case.parse(text)
    except ValueError as error:
        return f"{text}: {str(error)[:300]}"
    return ""

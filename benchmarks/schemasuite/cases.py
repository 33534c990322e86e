"""JSON-Schema-Test-Suite's cases, from a folder that is not the project's, and texts of their instances."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DRAFTS: Final = ("draft2020-12", "draft7")
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
_MOST_TEXTS: Final = 200


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a case, and whether the suite calls it valid."""

    value: Any
    is_valid: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One schema with its instances.

    Attributes
    ----------
    keyword
        The file's name: the keyword that it is about, in the folder `optional` with that before it.
    """

    draft: str
    keyword: str
    description: str
    schema: Any
    instances: tuple[Instance, ...]

    @property
    def is_optional(self) -> bool:
        """Whether JSON Schema leaves it to implementations."""
        return self.keyword.startswith("optional/")


def cases(tests: Path) -> Iterator[Case]:
    """Yield the cases of all drafts that are looked at, in the order of their files' names.

    Parameters
    ----------
    tests
        The suite's folder `tests`.

    Raises
    ------
    FileNotFoundError
        It has no cases.
    """
    for draft in DRAFTS:
        files = sorted((tests / draft).rglob("*.json"))
        if not files:
            raise FileNotFoundError(f"no {draft}/*.json in {tests}")
        for file in files:
            keyword = file.relative_to(tests / draft).with_suffix("").as_posix()
            for case in json.loads(file.read_text()):
                yield of(draft, keyword, case)


def of(draft: str, keyword: str, case: Any) -> Case:
    """Return a case as the suite's files write it; what is of draft 7 says so in `$schema`."""
    schema = case["schema"]
    if draft == "draft7" and isinstance(schema, dict):
        schema = {"$schema": _DRAFT_7, **schema}
    instances = tuple(Instance(test["data"], test["valid"]) for test in case["tests"])
    return Case(draft, keyword, case["description"], schema, instances)


def texts(value: Any) -> list[str]:
    """Return JSON texts of a value: an answer may have an object's properties in any order."""
    return list(dict.fromkeys(itertools.islice(_texts(value), _MOST_TEXTS)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            parts = [[f"{_text(name)}:{part}" for part in texts(value[name])] for name in names]
            yield from (f"{{{','.join(members)}}}" for members in itertools.product(*parts))
    elif isinstance(value, list):
        yield from (f"[{','.join(items)}]" for items in itertools.product(*map(texts, value)))
    else:
        yield _text(value)
        if isinstance(value, str):
            yield json.dumps(value)
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text

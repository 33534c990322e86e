"""Which bounds in a structural tag's schemas ranks can follow.

A text tells where a value of JSON begins if what stands before the value can be nothing else: neither free
text, nor a part of the tag's other texts. Of a tag in which that is not so the bounds are compiled.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from guided_contract.counting import NOTHING, Position
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.compile import followed
from guided_sidecar.grammar.compile.followed import Followed

_REPEATED: Final = frozenset(["plus", "repeat", "star"])
# The keys of the parts of what holds one, and of what holds several.
_ONE: Final = {"optional": "content", "structural_tag": "format", **dict.fromkeys(_REPEATED, "content")}
_SOME: Final = {
    "or": "elements",
    "sequence": "elements",
    "tags_with_separator": "tags",
    "triggered_tags": "tags",
}
_LONGEST: Final = 256  # characters before a value


class _UnclearError(Exception):
    """A text does not tell where the values are."""


def split(tag: Any, backend: Backend) -> Followed:
    """Take what is better followed than compiled out of a tag's schemas.

    Parameters
    ----------
    tag
        As xgrammar's models have it, with its schemas in their normal form.
    """
    texts = _Texts()
    try:
        texts.read({"type": "structural_tag", **tag}, is_last=True)
        texts.check()
    except _UnclearError:
        return Followed(tag, [])
    begins: dict[str, int] = {}
    positions = [Position()]
    parts = {begin: followed.split(schema, backend) for begin, schema in texts.values.items()}
    for begin, part in parts.items():
        begins[begin] = len(positions)
        positions += _moved(part.positions or [Position()], len(positions))
    positions[0] = Position(begins=begins)
    if not any(part.positions for part in parts.values()) or not followed.is_sendable(positions):
        return Followed(tag, [])
    relaxed = {id(schema): parts[begin].schema for begin, schema in texts.values.items()}
    return Followed(
        subschemas.with_each_of_tag(tag, lambda _, schema: relaxed.get(id(schema), schema)), positions
    )


def _moved(positions: Iterable[Position], by: int) -> Iterable[Position]:
    def moved(index: int) -> int:
        return index if index == NOTHING else index + by

    return [
        msgspec.structs.replace(
            position,
            properties={name: moved(index) for name, index in position.properties.items()},
            others=moved(position.others),
            prefix=[moved(index) for index in position.prefix],
            items=moved(position.items),
        )
        for position in positions
    ]


class _Texts:
    """What a tag has written around its values.

    Attributes
    ----------
    values
        The schema of a value by the text before it.
    others
        All other texts that the tag writes.
    triggers
        What free text does not hold.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.others: list[str] = []
        self.triggers: list[str] = []

    def read(self, part: Any, *, is_last: bool) -> None:
        """Read a part of a tag; nothing follows the last one.

        Raises
        ------
        _UnclearError
            It writes what is no constant text, but for values, and free text without triggers in one place
            that nothing follows: free text and what is behind it could begin a value together.
        """
        kind = part.get("type", "tag")  # which a tag among others may leave out
        if "triggers" in part:
            if self.triggers or not is_last:
                raise _UnclearError
            self.triggers += part["triggers"]
        self.others += _written(part.get("separator", ()))
        if "structures" in part:
            for structure in part["structures"]:
                self._tag(structure["begin"], {"type": "json_schema", "json_schema": structure["schema"]})
                self.others += _written(structure["end"])
        elif kind == "tag":
            self._tag(part["begin"], part["content"])
            self.others += _written(part["end"])
        elif kind == "const_string":
            self.others.append(part["value"])
        elif kind in _ONE:
            self.read(part[_ONE[kind]], is_last=is_last and kind not in _REPEATED)
        elif kind in _SOME:
            self._read_some(kind, part[_SOME[kind]], is_last=is_last)
        else:
            raise _UnclearError

    def _read_some(self, kind: str, parts: Sequence[Any], *, is_last: bool) -> None:
        for number, one in enumerate(parts):
            is_behind_all = kind == "or" or (kind == "sequence" and number == len(parts) - 1)
            self.read(one, is_last=is_last and is_behind_all)

    def _tag(self, begin: Any, content: Any) -> None:
        (text,) = _written(begin)
        if content["type"] != "json_schema":
            self.others.append(text)
            self.read(content, is_last=False)
            return
        schema = content["json_schema"]
        is_json = content.get("style", "json") == "json" and not content.get("excludes")
        if not is_json or self.values.setdefault(text, schema) is not schema:
            raise _UnclearError

    def check(self) -> None:
        """Raise _UnclearError where a text that is before a value can also stand, or begin, elsewhere."""
        known = sorted(self.values)
        if not known or not known[0] or max(map(len, known)) > _LONGEST:
            raise _UnclearError
        if any(after.startswith(text) for text, after in itertools.pairwise(known)):
            raise _UnclearError
        for text in known:
            is_first = not self.triggers or any(map(text.startswith, self.triggers))
            if not is_first or any(text.find(trigger, 1) > 0 for trigger in self.triggers):
                raise _UnclearError
        written = [(text, start) for text in known for start in range(1, len(text))]
        written += [(text, start) for text in set(self.others) for start in range(len(text))]
        if any(_meets(known, text[start : start + _LONGEST]) for text, start in written):
            raise _UnclearError


def _meets(known: Sequence[str], rest: str) -> bool:
    """Return whether one of sorted texts begins so, or is what this begins with."""
    after = bisect.bisect_right(known, rest)
    return (after > 0 and rest.startswith(known[after - 1])) or (
        after < len(known) and known[after].startswith(rest)
    )


def _written(text: Any) -> list[str]:
    """Return the constant texts that a key of a tag names; a token is none."""
    if isinstance(text, dict):
        raise _UnclearError
    return [text] if isinstance(text, str) else list(text)

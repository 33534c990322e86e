"""Which bounds in the schemas of a structural tag ranks can follow.

A text tells where a value of JSON begins if what stands before the value can be nothing else: neither free
text (behind which the library takes a trigger alone, or nothing), nor a part of the tag's other texts. Of a
tag in which that is not so the bounds are compiled.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from guided_contract.counting import NOTHING, Position
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_grammar.texts import new_form
from guided_sidecar.grammar.compile import followed
from guided_sidecar.grammar.compile.followed import Followed

_CLEAR: Final = frozenset(
    ["const_string", "optional", "or", "plus", "repeat", "sequence", "star", "tag", "tags_with_separator"]
)
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
        texts.read(new_form(tag)["format"])
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

    def read(self, part: Any) -> None:
        """Read a part of a tag.

        Raises
        ------
        _UnclearError
            It writes what is no constant text, but for values, and free text up to triggers in one place.
        """
        kind = part.get("type", "tag")  # which a tag among others may leave out
        if kind == "triggered_tags" and not self.triggers:
            self.triggers += part["triggers"]
        elif kind not in _CLEAR:
            raise _UnclearError
        for key in ("end", "separator", "value"):
            self.others += _written(part.get(key, ()))
        if kind == "tag":
            self._tag(part["begin"], part["content"])
            return
        inner = [one for key in ("elements", "tags") for one in part.get(key, ())]
        for one in [*inner, part["content"]] if "content" in part else inner:
            self.read(one)

    def _tag(self, begin: Any, content: Any) -> None:
        (text,) = _written(begin)
        if content["type"] != "json_schema":
            self.others.append(text)
            self.read(content)
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

"""Which bounds in the schemas of a structural tag ranks can follow.

A text tells where a value of JSON begins if what stands before the value can be nothing else: neither free
text (behind which the library takes a trigger alone, or nothing), nor a part of the tag's other texts. Of a
tag in which that is not so the bounds are compiled.
"""

from typing import Any, Final

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
    parts = {begin: followed.split(schema, backend) for begin, schema in texts.values.items()}
    begins: dict[str, int] = {}
    positions = [Position()]
    for begin, part in parts.items():
        first = begins[begin] = len(positions)
        moved = lambda index: index if index == NOTHING else index + first  # noqa: E731, B023 - used here
        positions += [followed.renumbered(one, moved) for one in part.positions or [Position()]]
    positions[0] = Position(begins=begins)
    if not any(part.positions for part in parts.values()) or not followed.is_sendable(positions):
        return Followed(tag, [])
    relaxed = {id(schema): parts[begin].schema for begin, schema in texts.values.items()}
    return Followed(
        subschemas.with_each_of_tag(tag, lambda _, schema: relaxed.get(id(schema), schema)), positions
    )


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
        inner = [one for key in ("elements", "tags") for one in part.get(key, ())]
        if "content" in part:
            inner.append(part["content"])
        if kind == "tag":
            (begin,) = _written(part["begin"])
            if part["content"]["type"] == "json_schema":
                self._value(begin, part["content"])
                return
            self.others.append(begin)
        for one in inner:
            self.read(one)

    def _value(self, begin: str, content: Any) -> None:
        schema = content["json_schema"]
        is_json = content.get("style", "json") == "json" and not content.get("excludes")
        if not is_json or self.values.setdefault(begin, schema) is not schema:
            raise _UnclearError

    def check(self) -> None:
        """Raise _UnclearError where a text that is before a value can also stand, or begin, elsewhere."""
        lengths = {len(text) for text in self.values}
        if not lengths or 0 in lengths or max(lengths) > _LONGEST:
            raise _UnclearError
        begun = {text[:length] for text in self.values for length in range(1, len(text))}
        starts = [(text, start) for text in self.values for start in range(1, len(text))]
        starts += [(text, start) for text in set(self.others) for start in range(len(text))]
        rests = (text[start : start + max(lengths)] for text, start in starts)
        if any(rest in begun or any(rest[:length] in self.values for length in lengths) for rest in rests):
            raise _UnclearError
        if any(text in begun for text in self.values):
            raise _UnclearError
        for text in self.values if self.triggers else ():
            is_first = any(map(text.startswith, self.triggers))
            if not is_first or any(text.find(trigger, 1) > 0 for trigger in self.triggers):
                raise _UnclearError


def _written(text: Any) -> list[str]:
    """Return the constant texts that a key of a tag names; a token is none."""
    if isinstance(text, dict):
        raise _UnclearError
    return [text] if isinstance(text, str) else list(text)

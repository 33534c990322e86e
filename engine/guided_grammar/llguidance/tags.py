"""A structural tag as one Lark grammar, in which the arguments of calls are JSON as in a response_format.

llguidance reads lexemes, the longest first, where xgrammar follows all that may be meant. So a tag is taken
only where it can be told soon which lexeme is meant: free text from what ends it, literals from one another,
JSON from all else. There both take the same (docs/how-a-grammar-is-served.md).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from guided_grammar.llguidance import elements
from guided_grammar.llguidance.lexemes import (
    FREE,
    JSON,
    NUMBER,
    NotTakenError,
    Part,
    Starts,
    Writer,
    either,
    in_order,
)
from guided_grammar.texts import literal, new_form

_DIGITS: Final = (r"\d+", "[0-9]+")  # to llguidance the first is digits of any script
_REPEATS: Final = {"optional": (0, 1), "plus": (1, -1), "star": (0, -1)}
# Of JSON and of free text; vLLM's parsers ask for none of it.
_FURTHER: Final = ("any_order", "max_chars", "max_tokens", "max_whitespace_cnt")


def as_lark(tag: Any, special: Mapping[str, int], eos: int) -> str:
    """Write a structural tag, of the old form or the new, as Lark.

    Parameters
    ----------
    special
        Token ids of special tokens by their texts.
    eos
        The one that ends a text.

    Raises
    ------
    NotTakenError
        It has a part that is not written so, or two that would be taken for one another.
    """
    writer = Writer(special, eos)
    start, starts = _part(writer, new_form(tag)["format"])(frozenset())
    writer.check(starts)
    return "\n".join(["%llguidance {}", f"start: {start or literal('')}", *writer.rules])


def _part(writer: Writer, part: Any) -> Part:
    write = _WRITERS.get(part.get("type", "tag"))  # which a tag among others may leave out
    if write is None:
        raise NotTakenError(f"type {part['type']} is not supported")
    for key in _FURTHER:
        if part.get(key) not in (None, False):
            raise NotTakenError(f"{key} is not supported")
    return write(writer, part)


def _json_schema(writer: Writer, part: Any) -> Part:
    schema, style = part["json_schema"], part.get("style", "json")
    if part.get("excludes") or schema is False:
        raise NotTakenError("JSON with excludes, or without a valid value, is not supported")
    if style in elements.STYLES:
        return elements.arguments(writer, schema, elements.STYLES[style])
    if style != "json":
        raise NotTakenError(f"JSON of style {style} is not supported")
    form = {**elements.ON_ONE_LINE, **({} if schema is True else schema)}
    name = writer.named("json", f"%json {json.dumps(form)}")
    return writer.lexeme(name, JSON, name)


def _regex(writer: Writer, part: Any) -> Part:
    pattern = part["pattern"]
    if pattern in _DIGITS:
        return writer.lexeme("/[0-9]+/", NUMBER, "")
    if not pattern or "/" in pattern or "\n" in pattern:
        raise NotTakenError("its regex is not supported: empty, or with a / or a line end")
    return writer.lexeme(f"/{pattern}/", FREE, pattern)


def _any_text(writer: Writer, part: Any) -> Part:
    def written(follow: Starts) -> tuple[str, Starts]:
        if follow:
            raise NotTakenError("nothing ends its free text")
        return writer.free(_excludes(part), ())(follow)

    return written


def _excludes(part: Any) -> Sequence[str]:
    """Return what free text has not."""
    return part.get("excludes") or ()


def _tag(writer: Writer, part: Any) -> Part:
    return in_order([writer.texts(part["begin"]), _inside(writer, part)])


def _inside(writer: Writer, part: Any) -> Part:
    """Return a tag's content and end."""
    content, end = part["content"], part["end"]
    if content["type"] != "any_text":
        return in_order([_part(writer, content), writer.texts(end)])
    if writer.is_plain(end):
        return writer.until(_excludes(content), end, ())
    ends = [end] if isinstance(end, str) else end
    return in_order([writer.free(_excludes(content), ends), writer.texts(end)])


def _triggered_tags(writer: Writer, part: Any) -> Part:
    if part.get("stop_after_first"):
        raise NotTakenError("stop_after_first is not supported")
    tags, triggers = part["tags"], part["triggers"]
    ways = [way for trigger in triggers for way in _triggered(writer, trigger, part)]
    for tag in tags:
        if not isinstance(tag["begin"], str) or sum(map(tag["begin"].startswith, triggers)) != 1:
            raise NotTakenError(f"no trigger begins {tag['begin']!r:.80}, or more than one does")
    first = [either([_tag(writer, tag) for tag in tags])] if part.get("at_least_one") else []
    free = writer.free(_excludes(part), triggers)
    return in_order([*first, writer.repeated(either(ways), 0, -1), free])


def _triggered(writer: Writer, trigger: str, part: Any) -> list[Part]:
    """Return free text and the tags that a trigger begins."""
    begun = [tag for tag in part["tags"] if tag["begin"].startswith(trigger)]
    if not trigger or not begun:
        raise NotTakenError(f"no tag begins with the trigger {trigger!r:.80}")
    rest = either(
        [in_order([writer.text(tag["begin"][len(trigger) :]), _inside(writer, tag)]) for tag in begun]
    )
    # Who spells special tokens out has begun the tag, too.
    ways = [in_order([writer.until(_excludes(part), trigger, part["triggers"]), rest])]
    if not writer.is_plain(trigger):
        free = writer.free(_excludes(part), part["triggers"])
        ways.append(in_order([free, writer.text(trigger), rest]))
    return ways


def _tags_with_separator(writer: Writer, part: Any) -> Part:
    tag = either([_tag(writer, one) for one in part["tags"]])
    least = int(bool(part.get("at_least_one")))
    if part.get("stop_after_first"):
        return tag if least else writer.repeated(tag, 0, 1)
    if not part["separator"]:
        return writer.repeated(tag, least, -1)
    others = writer.repeated(in_order([writer.text(part["separator"]), tag]), 0, -1)
    several = in_order([tag, others])
    return several if least else writer.repeated(several, 0, 1)


def _repeat(writer: Writer, part: Any) -> Part:
    least, most = _REPEATS[part["type"]]
    return writer.repeated(_part(writer, part["content"]), least, most)


_WRITERS: Final[Mapping[str, Callable[[Writer, Any], Part]]] = {
    "any_text": _any_text,
    "const_string": lambda writer, part: writer.text(part["value"]),
    "json_schema": _json_schema,
    "or": lambda writer, part: either([_part(writer, one) for one in part["elements"]]),
    "regex": _regex,
    "sequence": lambda writer, part: in_order([_part(writer, one) for one in part["elements"]]),
    "tag": _tag,
    "tags_with_separator": _tags_with_separator,
    "triggered_tags": _triggered_tags,
    **dict.fromkeys(_REPEATS, _repeat),
}

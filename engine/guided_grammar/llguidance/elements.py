"""The arguments of a call as elements of XML, one for each property: a text as it is, all else as JSON.

What vLLM's parsers read of an element is its text to the last character; some take an end of line off each
end. So a text has nothing around it, and no end of line at an end.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from guided_grammar.json_schema import subschemas
from guided_grammar.llguidance.lexemes import (
    FREE,
    JSON,
    UNTIL,
    NotTakenError,
    Part,
    Writer,
    either,
    in_order,
    literal,
)


class Style(NamedTuple):
    """How an element is written.

    Attributes
    ----------
    begin, end
        What stands before a property's name and behind its value.
    behind
        What may stand between the two.
    marks
        The names of marks that a parser looks for in a text, too.
    """

    begin: str
    behind: tuple[str, ...]
    end: str
    marks: str


STYLES: Final[Mapping[str, Style]] = {
    "glm_xml": Style(
        "<arg_key>",
        ("</arg_key><arg_value>", "</arg_key>\n<arg_value>"),
        "</arg_value>",
        "arg_key|arg_value|tool_call",
    ),
    "minimax_xml": Style('<parameter name="', ('">',), "</parameter>", "parameter|invoke|minimax:tool_call"),
    "qwen_xml": Style("<parameter=", (">",), "</parameter>", "parameter|function|tool_call"),
}
_OF_ARGUMENTS: Final = {"type", "properties", "required", "additionalProperties", "$defs"}
_OF_TEXT: Final = {"type", "format", "pattern", "minLength", "maxLength"}
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Of those that a normal form leaves to the library.
_FORMATS: Final = {
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
_LONGEST: Final = 256  # characters that are counted, as each takes 1 ms to compile
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
_PARTS: Final = re.compile(r"\\.|\[\^?|.", re.DOTALL)
_CLASSES: Final = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
_ESCAPED: Final = {"/": r"\/", "\n": r"\n", r"\D": "[^0-9]", r"\W": "[^A-Za-z0-9_]"}
_SCALARS: Final = {"null": "null", "boolean": "true|false", "integer": "-?(?:0|[1-9][0-9]*)"}
_LINES: Final = ("", "\n")
# Parsers of several models read no call whose arguments have ends of lines.
ON_ONE_LINE: Final = {"x-guidance": {"whitespace_pattern": "[ ]"}}


def arguments(writer: Writer, schema: Any, style: Style) -> Part:
    """Return the elements of an object, in the order of its properties.

    Raises
    ------
    NotTakenError
        The object or a text is asked for more than can be written so.
    """
    if not isinstance(schema, dict):
        raise NotTakenError("it has arguments without a schema")
    root, schema = schema, _referred(schema, schema)
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        raise NotTakenError("it has arguments beyond those that are named")
    if others := schema.keys() - _OF_ARGUMENTS:
        raise NotTakenError(f"it has {min(others)} of all arguments together")
    required, parts = schema.get("required", ()), list[Part]()
    properties = schema.get("properties", {})
    if not properties.keys() >= {*required}:
        raise NotTakenError("it has an argument that may be anything")
    for name, value in properties.items():
        if value is False and name not in required:
            continue
        if not _NAME.fullmatch(name):
            raise NotTakenError(f"it has no element with the name {name!r:.60}")
        element = _element(writer, name, value, root, style)
        parts.append(element if name in required else writer.repeated(element, 0, 1))
    return in_order(parts)


def _element(writer: Writer, name: str, value: Any, root: Any, style: Style) -> Part:
    value = _referred(value, root)
    around = ("",) if _may_be_text(value, root) else _LINES
    begins = [
        writer.text(f"{line}{style.begin}{name}{behind}{inner}")
        for line in _LINES
        for behind in style.behind
        for inner in around
    ]
    return in_order([either(begins), _value(writer, value, root, style)])


def _value(writer: Writer, value: Any, root: Any, style: Style) -> Part:
    """Return a value with what ends it."""
    if not _may_be_text(value, root):
        name = writer.named("json", f"%json {json.dumps({**ON_ONE_LINE, **_whole(value, root)})}")
        ends = [writer.text(line + style.end) for line in _LINES]
        return in_order([writer.lexeme(name, JSON, name), either(ends)])
    marks = rf"<\s*\/?\s*(?:{style.marks})"
    listed = _listed(value)
    if listed is not None:
        for text in listed:
            if (text and not writer.is_plain(text)) or text != text.strip("\n") or re.search(marks, text):
                raise NotTakenError(f"it has no element with the text {text!r:.60}")
        return either([writer.text(text + style.end) for text in listed])
    without = f"~/(?s:.*){marks}(?s:.*)/"
    ways = _text(value, root)
    text = f"/(?s:.*)/ & {without}"
    if ways is not None:
        text = rf"({ways}) & {without} & ~/\n(?s:.*)/ & ~/(?s:.*)\n/"
    if writer.is_plain(style.end):
        body = writer.named("TEXT", f"({text}) {literal(style.end)}")
        return writer.lexeme(body, UNTIL, body)
    body = writer.named("TEXT", text)
    return in_order([writer.lexeme(body, FREE, body), writer.text(style.end)])


def _referred(schema: Any, root: Any) -> Any:
    """Return what a schema refers to that says nothing else."""
    for _ in range(8):
        if not isinstance(schema, dict) or schema.keys() - {"$defs"} != {"$ref"}:
            return schema
        try:
            schema = subschemas.referred(root, schema["$ref"])
        except LookupError:
            break
    raise NotTakenError("it has a reference that leads to another")


def _whole(value: Any, root: Any) -> dict[str, Any]:
    """Return a schema with the definitions that it refers to."""
    found: dict[str, Any] = {} if value is True else value
    references = [part["$ref"] for part in subschemas.within(found) if "$ref" in part]
    if not all(one.startswith("#/$defs/") for one in references):
        raise NotTakenError("it has a reference to no definition")
    return {**found, "$defs": root["$defs"]} if references else found


def _listed(value: Any) -> list[str] | None:
    """Return the texts that a value is one of; None: it may be something else."""
    if not isinstance(value, dict):
        return None
    values = [value["const"]] if "const" in value else value.get("enum", ())
    others = value.keys() - {"type", "const", "enum"}
    is_listed = values and not others and all(isinstance(one, str) for one in values)
    return list(values) if is_listed and value.get("type", "string") == "string" else None


def _types(value: Any, root: Any) -> set[str]:
    """Return the types that a value may have, "string" where that is not plain."""
    if not isinstance(value, dict):
        return {"string"}
    if "type" in value:
        return {value["type"]} if isinstance(value["type"], str) else {*value["type"]}
    if "const" in value or "enum" in value:
        values = [value["const"]] if "const" in value else value["enum"]
        return {"string" if isinstance(one, str) else "null" for one in values}
    branches = value.get("anyOf") or value.get("oneOf")
    if branches:
        return {name for one in branches for name in _types(_referred(one, root), root)}
    return {"string"}


def _may_be_text(value: Any, root: Any) -> bool:
    return "string" in _types(value, root)


def _text(value: Any, root: Any) -> str | None:
    """Return what a text has to be, as Lark; None: it may be any."""
    if not isinstance(value, dict):
        raise NotTakenError("it has an argument that may be anything")
    ways = [*_ways(value, root)]
    return None if None in ways else " | ".join(filter(None, ways))


def _ways(value: dict[str, Any], root: Any) -> Iterator[str | None]:
    if "anyOf" in value:
        if value.keys() - {"anyOf"}:
            raise NotTakenError("it has a text beside alternatives")
        for one in value["anyOf"]:
            branch = _referred(one, root)
            if not isinstance(branch, dict):
                raise NotTakenError("it has an argument that may be anything")
            yield from _ways(branch, root)
        return
    listed = _listed(value)
    if listed is not None:
        yield from map(literal, listed)
        return
    for name in sorted(_types(value, root)):
        if name == "string":
            yield _constrained(value)
        elif name in _SCALARS and not value.keys() - {"type", *_OF_TEXT}:
            yield f"/{_SCALARS[name]}/"
        else:
            raise NotTakenError(f"it has a text or {name}")


def _constrained(value: dict[str, Any]) -> str | None:
    if others := value.keys() - _OF_TEXT:
        raise NotTakenError(f"it has a text with {min(others)}")
    least, most = value.get("minLength", 0), value.get("maxLength")
    if max(least, most or 0) > _LONGEST:
        raise NotTakenError(f"it has no text that is counted to more than {_LONGEST} characters")
    parts = [f"/(?s:.{{{least},{'' if most is None else most}}})/"] if least or most is not None else []
    if "format" in value:
        if value["format"] not in _FORMATS:
            raise NotTakenError(f"it has no text of the format {value['format']!r:.60}")
        parts.append(f"/{_FORMATS[value['format']]}/")
    if "pattern" in value:
        parts.append(f"/{_whole_pattern(value['pattern'])}/")
    return " & ".join(parts) or None


def _whole_pattern(pattern: str) -> str:
    """Return what a whole text is in which a pattern is found, as Lark has it between slashes."""
    if _chooses(pattern):
        if re.search(r"(?<!\\)[$^](?![^\[]*\])", pattern):
            raise NotTakenError("it has a pattern whose alternatives have ends of their own")
        return f"(?s:.*)(?:{_in_ascii(pattern)})(?s:.*)"
    begin, end = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$$", pattern) is not None
    inner = _in_ascii(pattern[begin : len(pattern) - end])
    return f"{'' if begin else '(?s:.*)'}(?:{inner}){'' if end else '(?s:.*)'}"


def _in_ascii(pattern: str) -> str:
    """Return a pattern whose digits and letters are ECMA's, without a slash."""
    written, is_class = list[str](), False
    for part in _PARTS.findall(pattern):
        spans = _CLASSES.get(part)
        if spans is not None:
            written.append(spans if is_class else f"[{spans}]")
            continue
        if part in (r"\D", r"\W") and is_class:
            raise NotTakenError("it has a class without some letters within another")
        is_class = part.startswith("[") or (is_class and part != "]")
        written.append(_ESCAPED.get(part, part))
    return "".join(written)


def _chooses(pattern: str) -> bool:
    """Return whether a pattern is several alternatives, outside of all groups."""
    depth, is_class = 0, False
    for part in _PARTS.findall(pattern):
        if not is_class:
            depth += {"(": 1, ")": -1}.get(part, 0)
            if part == "|" and not depth:
                return True
        is_class = part.startswith("[") or (is_class and part != "]")
    return False

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
)
from guided_grammar.texts import literal


class Style(NamedTuple):
    """What stands before a property's name, may stand behind it, and ends its value; a parser's marks."""

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
_PARTS: Final = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[/\n]", re.DOTALL)
_IN_CLASS: Final = {r"\d": "0-9", r"\w": "A-Za-z0-9_", "/": r"\/", "\n": r"\n"}
_OUTSIDE: Final = {
    **_IN_CLASS,
    r"\d": "[0-9]",
    r"\w": "[A-Za-z0-9_]",
    r"\D": "[^0-9]",
    r"\W": "[^A-Za-z0-9_]",
}
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
        raise NotTakenError("it has arguments that properties does not name")
    if others := schema.keys() - _OF_ARGUMENTS:
        raise NotTakenError(f"it has {min(others)} next to properties")
    required, parts = schema.get("required", ()), list[Part]()
    properties = schema.get("properties", {})
    if not properties.keys() >= {*required}:
        raise NotTakenError("it has an argument of any type")
    for name, value in properties.items():
        if value is False and name not in required:
            continue
        if not _NAME.fullmatch(name):
            raise NotTakenError(f"the argument name {name!r:.60} is not supported")
        element = _element(writer, name, value, root, style)
        parts.append(element if name in required else writer.repeated(element, 0, 1))
    return in_order(parts)


def _element(writer: Writer, name: str, value: Any, root: Any, style: Style) -> Part:
    """Return a property's element; JSON may have an end of line on both sides, a text has none."""
    branches = _branches(value, root)
    is_text = any("string" in _types(one) for one in branches)
    begins = [
        writer.text(f"{line}{style.begin}{name}{behind}{inner}")
        for line in _LINES
        for behind in style.behind
        for inner in (("",) if is_text else _LINES)
    ]
    if is_text:
        return in_order([either(begins), _text(writer, branches, style)])
    schema = {**ON_ONE_LINE, **_whole(_referred(value, root), root)}
    rule = writer.named("json", f"%json {json.dumps(schema)}")
    ends = [writer.text(line + style.end) for line in _LINES]
    return in_order([either(begins), writer.lexeme(rule, JSON, rule), either(ends)])


def _text(writer: Writer, branches: list[Any], style: Style) -> Part:
    """Return a text with what ends it."""
    marks = rf"<\s*\/?\s*(?:{style.marks})"
    ways = [way for one in branches for way in _ways(writer, one, marks)]
    text = f"/(?s:.*)/ & ~/(?s:.*){marks}(?s:.*)/"
    if None not in ways:
        text = rf"({' | '.join(filter(None, ways))}) & {text} & ~/\n(?s:.*)/ & ~/(?s:.*)\n/"
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
    raise NotTakenError("it has a $ref to another $ref")


def _whole(value: Any, root: Any) -> dict[str, Any]:
    """Return a schema with the definitions that it refers to."""
    found: dict[str, Any] = {} if value is True else value
    references = [part["$ref"] for part in subschemas.within(found) if "$ref" in part]
    if not all(one.startswith("#/$defs/") for one in references):
        raise NotTakenError("it has a $ref outside of #/$defs/")
    return {**found, "$defs": root["$defs"]} if references else found


def _branches(value: Any, root: Any) -> list[Any]:
    """Return the schemas of which a value meets one."""
    value = _referred(value, root)
    if not isinstance(value, dict) or value.keys() != {"anyOf"}:
        return [value]
    return [branch for one in value["anyOf"] for branch in _branches(one, root)]


def _values(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _types(schema: Any) -> set[str]:
    """Return the types that a value may have, "string" where that is not plain."""
    if not isinstance(schema, dict):
        return {"string"}
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else {*schema["type"]}
    return {"string" if isinstance(one, str) else "null" for one in _values(schema)} or {"string"}


def _ways(writer: Writer, schema: Any, marks: str) -> Iterator[str | None]:
    """Yield what a text may be, as Lark; None: anything."""
    if not isinstance(schema, dict):
        raise NotTakenError("it has an argument of any type")
    types, values = _types(schema), _values(schema)
    is_listed = bool(values) and all(isinstance(one, str) for one in values) and "string" in types
    if is_listed and not schema.keys() - {"type", "const", "enum"}:
        for text in values:
            if (text and not writer.is_plain(text)) or text != text.strip("\n") or re.search(marks, text):
                raise NotTakenError(f"the value {text!r:.60} is not supported")
            yield literal(text)
        return
    for name in sorted(types):
        if name == "string":
            yield _constrained(schema)
        elif name in _SCALARS and not schema.keys() - {"type", *_OF_TEXT}:
            yield f"/{_SCALARS[name]}/"
        else:
            raise NotTakenError(f"it has an argument that is a string or {name}")


def _constrained(schema: dict[str, Any]) -> str | None:
    if others := schema.keys() - _OF_TEXT:
        raise NotTakenError(f"it has a string with {min(others)}")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if max(least, most or 0) > _LONGEST:
        raise NotTakenError(f"string lengths above {_LONGEST} are not supported")
    parts = [f"/(?s:.{{{least},{'' if most is None else most}}})/"] if least or most is not None else []
    if "format" in schema:
        if schema["format"] not in _FORMATS:
            raise NotTakenError(f"format {schema['format']!r:.60} is not supported")
        parts.append(f"/{_FORMATS[schema['format']]}/")
    if "pattern" in schema:
        parts.append(f"/{_whole_pattern(schema['pattern'])}/")
    return " & ".join(parts) or None


def _whole_pattern(pattern: str) -> str:
    """Return what a whole text is in which a pattern is found, as Lark has it between slashes."""
    outside, groups = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "", pattern), 1
    has_ends = not {"^", "$"}.isdisjoint(outside)
    while groups:
        outside, groups = re.subn(r"\([^()]*\)", "", outside)
    begin, end = False, False
    if "|" not in outside:
        begin, end = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$$", pattern) is not None
    elif has_ends:
        raise NotTakenError("it has a pattern with an anchor in some alternatives")
    inner = _PARTS.sub(_in_ascii, pattern[begin : len(pattern) - end])
    return f"{'' if begin else '(?s:.*)'}(?:{inner}){'' if end else '(?s:.*)'}"


def _in_ascii(found: re.Match[str]) -> str:
    """Return a part of a pattern, whose digits and letters are ECMA's, without a slash."""
    part = found[0]
    if not part.startswith("["):
        return _OUTSIDE.get(part, part)
    parts = re.findall(r"\\.|.", part, re.DOTALL)
    if not {r"\D", r"\W"}.isdisjoint(parts):
        raise NotTakenError("it has \\D or \\W in a character class")
    return "".join(_IN_CLASS.get(one, one) for one in parts)

"""What is wrong with a structural tag by xgrammar's own models of its parts, and what xgrammar ignores."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pydantic

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults
from guided_sidecar.grammar.schema.limits import long_repeat


class _Structure(pydantic.BaseModel):
    begin: str
    schema_: bool | dict[str, Any] = pydantic.Field(alias="schema")
    end: str


class _OldForm(pydantic.BaseModel):
    type: Literal["structural_tag"] = "structural_tag"
    structures: list[_Structure]
    triggers: list[str]


def _models() -> Any:
    from xgrammar import structural_tag  # noqa: PLC0415 - of workers alone, and without torch

    return structural_tag


def check(tag: dict[str, Any]) -> None:
    """Refuse what xgrammar's models refuse, keys that nobody reads, and what is not enforced.

    Raises
    ------
    GuidedError
        With the path of each of up to ten: grammar_invalid, or grammar_unsupported.
    """
    is_old = "structures" in tag
    faults.refuse(_malformed(_OldForm if is_old else _models().StructuralTag, tag))
    faults.refuse(() if is_old else _ignored({"type": "structural_tag", **tag}, ROOT))


def _malformed(model: type[pydantic.BaseModel], tag: dict[str, Any]) -> Iterator[GuidedError]:
    try:
        model.model_validate_json(json.dumps(tag), strict=True, extra="forbid")
    except pydantic.ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            is_extra = one["type"] == "extra_forbidden"
            path = _place(tag, one["loc"][:-1] if is_extra else one["loc"], is_key=one["type"] == "missing")
            path = JsonPath(path, one["loc"][-1]) if is_extra else path
            code = ErrorCode.GRAMMAR_UNSUPPORTED if is_extra else ErrorCode.GRAMMAR_INVALID
            yield faults.fault(str(path), _reason(one), code)


def _reason(error: Any) -> str:
    """Say what pydantic found, without its terms for a choice by type."""
    match error["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "missing":
            return "it is required"
        case "union_tag_not_found":
            return "type is missing"
        case "union_tag_invalid":
            found, known = error["ctx"]["tag"], error["ctx"]["expected_tags"]
            return f"type {'null' if found == 'None' else repr(found[:60])} is unknown; use {known}"
    said: str = error["msg"]
    return said


def _place(tag: Any, location: Sequence[int | str], *, is_key: bool) -> JsonPath:
    """Return the path of pydantic's location, which names the models between which a value chooses, too."""
    path, is_chosen = ROOT, False
    value: Any = tag
    for step in location:
        holder: Any = value
        keys = range(len(value)) if isinstance(value, list) else holder
        if isinstance(value, dict) and value.get("type") == step and not is_chosen:
            is_chosen = True
        elif isinstance(value, dict | list) and step in keys:
            path, value, is_chosen = JsonPath(path, step), holder[step], False
    return JsonPath(path, location[-1]) if is_key else path


def _ignored(part: Any, path: JsonPath, ends: Sequence[Any] = ()) -> Iterator[GuidedError]:
    """Yield what is not enforced of a part of a tag; `ends` are those of the tags around it."""
    if isinstance(part, list):
        for number, one in enumerate(part):
            yield from _ignored(one, JsonPath(path, number), ends)
    if not isinstance(part, dict):
        return
    kind = part.get("type", "tag")  # which a tag among others may leave out
    if kind == "json_schema":
        yield from _unenforced(part, path)
    for of_kind, key in (("regex", "pattern"), ("grammar", "grammar")):
        if kind == of_kind and (reason := long_repeat(of_kind, part[key])):
            yield faults.fault(str(JsonPath(path, key)), reason, ErrorCode.GRAMMAR_UNSUPPORTED)
    if kind in {"dispatch", "triggered_tags"}:
        yield from _untriggered(part, path, ends)
    if kind == "tag":
        end = part["end"]
        ends = [*ends, *(end if isinstance(end, list) else [end])]
    for key in ("format", "content", "elements", "tags", "rules"):
        yield from _ignored(part.get(key), JsonPath(path, key), ends)


def _unenforced(part: dict[str, Any], path: JsonPath) -> Iterator[GuidedError]:
    """Yield what xgrammar 0.2.8 takes and does not hold: of any order it counts the entries alone."""
    parts = list(subschemas.within(part["json_schema"]))
    for key, beside in (("any_order", {"required"}), ("excludes", {"format", "pattern"})):
        found = sorted(beside & set().union(*parts)) if parts and part.get(key) else []
        if found:
            reason = f"it is not supported together with {found[0]}"
            yield faults.fault(str(JsonPath(path, key)), reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def _untriggered(part: dict[str, Any], path: JsonPath, ends: Sequence[Any]) -> Iterator[GuidedError]:
    """Yield what xgrammar 0.2.8 takes any text after: something else that ends free text goes on alike."""
    others = [text for text in (*part.get("excludes", ()), *ends) if isinstance(text, str)]
    found: dict[str, tuple[str, ...]]
    if part["type"] == "dispatch":
        found = {f"{path}.rules[{number}][0]": (text,) for number, (text, _) in enumerate(part["rules"])}
    else:
        begins = [tag["begin"] for tag in part["tags"] if isinstance(tag["begin"], str)]
        found = {
            f"{path}.triggers[{number}]": tuple(
                begin[: len(text) + 1] for begin in begins if begin.startswith(text) and begin != text
            )
            for number, text in enumerate(part["triggers"])
        }
    for where, longer in found.items():
        if shared := next((text for text in others if text.startswith(longer)), None):
            reason = f"it is not supported together with {shared!r:.60}, which begins with the same text"
            yield faults.fault(where, reason, ErrorCode.GRAMMAR_UNSUPPORTED)

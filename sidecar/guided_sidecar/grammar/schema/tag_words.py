"""What is wrong with a structural tag by xgrammar's own models of its parts, and what xgrammar ignores."""

import difflib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import pydantic

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults
from guided_sidecar.grammar.schema.limits import long_repeat, shown

_INPUT: Final = "Input should be "  # how pydantic begins to say what a value is to be
_MISSING: Final = "Field required"  # and says that there is none


class _Structure(pydantic.BaseModel):
    begin: str
    schema_: bool | dict[str, Any] = pydantic.Field(alias="schema")
    end: str


class _OldForm(pydantic.BaseModel):
    type: Literal["structural_tag"] = "structural_tag"
    structures: list[_Structure]
    triggers: list[str]


@functools.cache
def formats() -> Mapping[str, frozenset[str]]:
    """Return the keys of each format that xgrammar knows, by its type."""
    found = {}
    for model in vars(_models()).values():
        if isinstance(model, type) and issubclass(model, pydantic.BaseModel) and "type" in model.model_fields:
            (name,) = get_args(model.model_fields["type"].annotation)
            found[name] = frozenset(model.model_fields)
    return found


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
    told: dict[str, tuple[ErrorCode, list[str]]] = {}
    for fault in _faults(model, json.dumps(tag)):
        location, code, reason = fault["loc"], ErrorCode.GRAMMAR_INVALID, fault["msg"]
        path, holder, value = _place(tag, location, is_key=fault["type"] in {"missing", "extra_forbidden"})
        if fault["type"].startswith("union_tag"):
            path = JsonPath(path, "type")
            known = fault.get("ctx", {}).get("expected_tags")
            reason = f"{shown(value['type'])} is none of {known}" if known else _MISSING
        if fault["type"] == "extra_forbidden":
            code = ErrorCode.GRAMMAR_UNSUPPORTED
            reason = _no_such_key(str(location[-1]), _keys(model, holder, is_root=len(location) == 1))
        told.setdefault(str(path), (code, []))[1].append(reason)
    for where, (code, (first, *others)) in told.items():
        if any(other.startswith((f"{where}.", f"{where}[")) for other in told):
            continue  # of two ways to read it, the one that got further is meant
        more = [other.removeprefix(_INPUT) for other in others if other.startswith(_INPUT)]
        yield faults.fault(where, " or ".join([first, *more]), code)


def _faults(model: type[pydantic.BaseModel], text: str) -> Sequence[Any]:
    try:
        model.model_validate_json(text, strict=True, extra="forbid")
    except pydantic.ValidationError as error:
        return error.errors(include_url=False, include_input=False)
    return []


def _place(tag: Any, location: Sequence[int | str], *, is_key: bool) -> tuple[JsonPath, Any, Any]:
    """Return the path of pydantic's location, what holds it, and what is there.

    Parameters
    ----------
    location
        Keys and indices, and the names of the models between which a value was to choose.
    is_key
        Whether the last step is a key for certain.
    """
    path, holder, value, is_chosen = ROOT, tag, tag, False
    for number, step in enumerate(location):
        keys = range(len(value)) if isinstance(value, list) else value
        is_there = isinstance(value, dict | list) and step in keys
        is_model = isinstance(value, dict) and not is_chosen and value.get("type") == step
        if is_there and not is_model:
            path, holder, value, is_chosen = JsonPath(path, step), value, value[step], False
        elif is_key and number == len(location) - 1:
            path, holder = JsonPath(path, step), value
        else:
            is_chosen = True
    return path, holder, value


def _keys(model: type[pydantic.BaseModel], holder: dict[str, Any], *, is_root: bool) -> frozenset[str]:
    if is_root or model is _OldForm:
        fields = (model if is_root else _Structure).model_fields
        return frozenset(field.alias or key for key, field in fields.items())
    return formats()[holder.get("type", "tag")]  # which a tag among others may leave out


def _no_such_key(key: str, known: frozenset[str]) -> str:
    close = difflib.get_close_matches(key[:100], sorted(known), 1)
    meant = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(sorted(known))}"
    return f"no such key; {meant}"


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
            reason = f"it is not enforced beside {found[0]}"
            yield faults.fault(str(JsonPath(path, key)), reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def _untriggered(part: dict[str, Any], path: JsonPath, ends: Sequence[Any]) -> Iterator[GuidedError]:
    """Yield what xgrammar 0.2.8 takes any text after: something else that ends free text goes on alike."""
    others = [text for text in (*part.get("excludes", ()), *ends) if isinstance(text, str)]
    for where, longer in _triggers(part, path):
        shared = next((text for text in others if text.startswith(longer)), None)
        if shared is not None:
            reason = f"what follows is not enforced beside {shared!r:.60}, which begins as it does"
            yield faults.fault(where, reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def _triggers(part: dict[str, Any], path: JsonPath) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the path of each text that ends free text, and how what else ends it must not begin."""
    if part["type"] == "dispatch":
        for number, (text, _) in enumerate(part["rules"]):
            yield str(JsonPath(JsonPath(JsonPath(path, "rules"), number), 0)), (text,)
        return
    begins = [tag["begin"] for tag in part["tags"] if isinstance(tag["begin"], str)]
    for number, trigger in enumerate(part["triggers"]):
        longer = {begin[: len(trigger) + 1] for begin in begins if begin.startswith(trigger)}
        yield str(JsonPath(JsonPath(path, "triggers"), number)), tuple(longer - {trigger})

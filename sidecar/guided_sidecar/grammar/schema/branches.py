"""oneOf, not, if and else, as alternatives."""

from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, listed, negation
from guided_sidecar.grammar.schema.origins import Said
from guided_sidecar.grammar.schema.writing import Schema, Writer, both, either, unsupported

_MOST_COMPARED: Final = 128  # each with all others


def choose(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write oneOf: each branch, without what those take that it is not apart from."""
    at = JsonPath(path, "oneOf")
    branches = said["oneOf"]
    judge = disjoint.Judge(writer)
    if judge.are_told_apart(branches):
        found = [writer.write(branch, JsonPath(at, index)) for index, branch in enumerate(branches)]
    elif len(branches) > _MOST_COMPARED:
        reason = f"more than {_MOST_COMPARED} branches are taken where a required constant tells them apart"
        raise unsupported(at, reason)
    else:
        types = disjoint.types(said)
        found = [_alone(writer, judge, branches, index, types, at) for index in range(len(branches))]
    if "anyOf" in written:
        writer.also(written, {"anyOf": found}, at)
    else:
        written["anyOf"] = found


def _alone(  # noqa: PLR0913, PLR0917 - one branch among others
    writer: Writer,
    judge: disjoint.Judge,
    branches: list[Any],
    index: int,
    types: frozenset[str],
    at: JsonPath,
) -> Any:
    """Return a branch without what the others take."""
    branch = writer.resolved(branches[index], at)
    said = writer.said(branch, at) if isinstance(branch, dict) else Said({})
    types &= disjoint.types(said)
    others = [
        (number, other)
        for number, other in enumerate(branches)
        if number != index and not judge.are_apart(branch, other, among=types)
    ]
    values = listed.kept(said, writer.draft)
    kept: list[Any] = []
    for number, other in others:
        shared = _shared(writer, values, other, at)
        if values is not None and shared is not None:
            values = [value for value in values if disjoint.text(value) not in shared]
            continue
        absent, is_all = writer.without(other, JsonPath(at, number), types)
        left = negation.plainest([one for one in absent if not negation.is_absence_of(one, said)])
        if len(left) < len(absent):
            writer.narrow(at)
        if not left and not is_all:
            raise unsupported(JsonPath(at, index), f"what of it meets oneOf[{number}], too, cannot be told")
        kept.append(either(left))
    if values is not None:
        return both([{"enum": values}, *kept]) if values else False
    return both([writer.write(branches[index], JsonPath(at, index)), *kept])


def _shared(writer: Writer, values: list[Any] | None, other: Any, at: JsonPath) -> set[str] | None:
    """Return which of some values another branch takes; None: that cannot be told."""
    if values is None or isinstance(other, bool):
        return None
    found = listed.meeting(values, writer.said(other, at), writer.draft)
    return None if found is None else set(map(disjoint.text, found))


def forbid(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write not."""
    at = JsonPath(path, "not")
    found, is_all = writer.without(said["not"], at, disjoint.types(said))
    if disjoint.are_integers(said):
        found = negation.of_integers(found)
    if not found and not is_all:
        raise unsupported(at, "what it forbids cannot be told from what is allowed")
    writer.also(written, either(found), at)


def branch(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write if, then and else."""
    if "then" not in said and "else" not in said:
        return
    condition, at = said["if"], JsonPath(path, "if")
    met = [writer.write(condition, at)]
    unmet, is_all = writer.without(condition, at, disjoint.types(said))
    if not is_all:
        raise unsupported(at, "when it is not met cannot be told")
    if "then" in said:
        met.append(writer.write(said["then"], JsonPath(path, "then")))
    found = [both(met)]
    if unmet:
        otherwise = writer.write(said.get("else", True), JsonPath(path, "else"))
        found.append(either(unmet) if otherwise is True else both([either(unmet), otherwise]))
    writer.also(written, either(found), at)

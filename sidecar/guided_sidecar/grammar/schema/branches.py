"""oneOf, not, if and else, as alternatives."""

from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, negation
from guided_sidecar.grammar.schema.writing import Schema, Writer, also, both, either, unsupported

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
        written_out = (_alone(writer, judge, branches, index, types, at) for index in range(len(branches)))
        found = [branch for branch in written_out if branch is not None]
    if not found:
        raise unsupported(at, "its branches cannot be told from each other, so that one alone is met")
    if "anyOf" in written:
        also(written, {"anyOf": found})
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
    """Return a branch without what the others take; None: that cannot be told."""
    branch = branches[index]
    if isinstance(branch, dict):
        types &= disjoint.types(writer.said(branch, at))
    kept = [writer.write(branch, JsonPath(at, index))]
    for number, other in enumerate(branches):
        if number != index and not judge.are_apart(branch, other):
            absent = negation.plainest(writer.without(other, JsonPath(at, number), types))
            if not absent:
                return None
            kept.append(either(absent))
    return both(kept)


def forbid(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write not."""
    at = JsonPath(path, "not")
    found = writer.without(said["not"], at, disjoint.types(said))
    if not found:
        raise unsupported(at, "what it forbids cannot be told from what is allowed")
    also(written, either(found))


def branch(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write if, then and else."""
    if "then" not in said and "else" not in said:
        return
    condition, at = said["if"], JsonPath(path, "if")
    met = [writer.write(condition, at)]
    unmet = writer.without(condition, at, disjoint.types(said))
    if not unmet and "else" in said:
        raise unsupported(at, "when it is not met cannot be told")
    if "then" in said:
        met.append(writer.write(said["then"], JsonPath(path, "then")))
    found = [both(met)]
    if unmet:
        otherwise = writer.write(said.get("else", True), JsonPath(path, "else"))
        found.append(either(unmet) if otherwise is True else both([either(unmet), otherwise]))
    also(written, either(found))

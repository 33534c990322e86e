"""oneOf as anyOf, where its branches are plainly apart."""

import itertools
from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint
from guided_sidecar.grammar.schema.origins import Said
from guided_sidecar.grammar.schema.writing import (
    TYPES,
    Alternatives,
    Schema,
    Writer,
    both,
    either,
    unsupported,
)

_MOST_COMPARED: Final = 128  # each with all others
_OBJECTS: Final = frozenset(["object"])


def choose(writer: Writer, said: Said, written: Schema, path: JsonPath) -> None:
    """Write oneOf as anyOf, or refuse the first branch that another one may overlap."""
    at = JsonPath(path, "oneOf")
    branches = said["oneOf"]
    found = [writer.write(branch, JsonPath(at, index)) for index, branch in enumerate(branches)]
    beside: list[Alternatives] = [[] for _ in branches]
    judge = disjoint.Judge(writer)
    if not judge.are_told_apart(branches):
        if len(branches) > _MOST_COMPARED:
            reason = f"more than {_MOST_COMPARED} branches need a required const property each"
            raise unsupported(at, reason)
        for index, number in itertools.combinations(range(len(branches)), 2):
            apart = _told_apart(judge, branches[index], branches[number], disjoint.types(said))
            if apart is None:
                reason = f"this branch may overlap oneOf[{index}]; make them disjoint (e.g. a const property)"
                raise unsupported(JsonPath(at, number), reason)
            beside[index] += apart[0]
            beside[number] += apart[1]
    if any(beside):
        writer.narrow(at)
    chosen = [both([branch, *others]) for branch, others in zip(found, beside, strict=True)]
    if "anyOf" in written:
        writer.also(written, {"anyOf": chosen}, at)
    else:
        written["anyOf"] = chosen


def _told_apart(
    judge: disjoint.Judge, one: Any, other: Any, types: frozenset[str]
) -> tuple[Alternatives, Alternatives] | None:
    """Return what tells two branches apart beside them: objects without the other's names."""
    if judge.are_apart(one, other, among=types):
        return [], []
    if isinstance(one, bool) or isinstance(other, bool):
        return None
    shared = types & judge.types(one) & judge.types(other)
    if "object" not in shared:
        return None
    if judge.are_apart(one, other, among=_OBJECTS):
        alone = {"type": sorted(TYPES - shared | _OBJECTS)}
        return [alone], [alone]
    asked, others = judge.required(one), judge.required(other)
    if not asked - others or not others - asked:
        return None
    return [_without_one(others - asked)], [_without_one(asked - others)]


def _without_one(names: set[str]) -> Any:
    return either([{"type": "object", "properties": {name: False}} for name in sorted(names)])

"""oneOf as anyOf, where its branches are plainly apart."""

import itertools
from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema.disjoint import Disjointness, types
from guided_sidecar.grammar.schema.faults import unsupported
from guided_sidecar.grammar.schema.origins import Said

_MOST_COMPARED: Final = 128  # each with all others


def choose(writer: Any, said: Said, written: dict[str, Any], path: JsonPath) -> None:
    """Write oneOf as anyOf, or refuse the first branch that another one may overlap."""
    at, branches = JsonPath(path, "oneOf"), said["oneOf"]
    found = [writer.write(branch, JsonPath(at, index)) for index, branch in enumerate(branches)]
    judge, among = Disjointness(writer), types(said)
    without: list[set[str]] = [set() for _ in branches]  # names that a branch goes without, to be apart
    if not judge.are_told_apart(branches):
        if len(branches) > _MOST_COMPARED:
            reason = f"more than {_MOST_COMPARED} branches are supported only with a const property in each"
            raise unsupported(at, reason)
        for index, number in itertools.combinations(range(len(branches)), 2):
            if judge.are_apart([branches[index]], [branches[number]], among=among):
                continue
            own, others = (judge.required(branches[one], among) for one in (index, number))
            if not own - others or not others - own:
                reason = f"this branch may overlap oneOf[{index}]; make them disjoint (e.g. a const property)"
                raise unsupported(JsonPath(at, number), reason)
            without[index] |= others - own
            without[number] |= own - others
    if any(without):
        writer.narrow(at)
    found = [
        {"allOf": [branch, {"properties": dict.fromkeys(sorted(names), False)}]} if names else branch
        for branch, names in zip(found, without, strict=True)
    ]
    if "anyOf" in written:
        writer.also(written, {"anyOf": found}, at)
    else:
        written["anyOf"] = found

"""How a GuidedModel is, as a tree of text; made from what the API server serves, by whatever release."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.backends import DISTRIBUTIONS
from guided_operator.cli.cluster import advice

Object = Mapping[str, Any]
Row = Sequence[str]  # columns


@dataclass(frozen=True, slots=True)
class Node:
    """A line, and what stands below it."""

    text: str
    below: tuple["Node", ...] = ()


_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))
_RESOLVED: Final = (
    ("vllmVersion", "vLLM"),
    ("modelRunner", "model runner"),
    ("pluginVersion", "plugin"),
)


def is_ready(model: Object) -> bool:
    """Say whether a model is Ready, and that of the spec as it is now."""
    found = _condition(model, "Ready")
    return found.get("status") == "True" and found.get("observedGeneration", 0) >= _generation(model)


def tree(model: Object, now: dt.datetime) -> str:
    """Return the whole of it, a line for each thing, without an end of line."""
    metadata = model["metadata"]
    top = f"GuidedModel {metadata.get('namespace', 'default')}/{metadata['name']}: {_summary(model)}"
    return "\n".join([top, *_draw(tuple(_parts(model, now)))])


def _summary(model: Object) -> str:
    if "deletionTimestamp" in model["metadata"]:
        return "being deleted"
    if is_ready(model):
        return "ready"
    reason = _condition(model, "Ready").get("reason")
    return f"not ready, {reason}" if reason else "not ready"


def _parts(model: Object, now: dt.datetime) -> Iterator[Node]:
    status = model.get("status") or {}
    if url := status.get("url"):
        yield Node(f"url  {url}")
    conditions = [
        (
            each.get("type", ""),
            each.get("status", ""),
            each.get("reason", ""),
            _since(each.get("lastTransitionTime"), now),
            each.get("message", ""),
        )
        for each in status.get("conditions") or ()
    ]
    if conditions:
        yield Node("conditions", _table(conditions))
    if engine := _engine(model):
        yield Node("engine", engine)
    if grammars := status.get("grammars"):
        yield Node("grammars", _table(map(_grammar, grammars)))
    if pods := status.get("pods"):
        ready, wanted = status.get("readyReplicas", 0), model["spec"].get("replicas", 1)
        yield Node(f"pods  {ready} of {wanted} ready", tuple(_pod(pod, now) for pod in pods))
    steps = advice.steps(model)
    yield Node("next", tuple(map(Node, steps))) if steps else Node("next  nothing to do")


def _engine(model: Object) -> tuple[Node, ...]:
    status = model.get("status") or {}
    resolved = status.get("resolved") or {}
    rows = []
    if image := resolved.get("image"):
        rows.append(("image", image))
    versions = [f"{label} {resolved[field]}" for field, label in _RESOLVED if resolved.get(field)]
    libraries = resolved.get("grammarLibraries") or {}
    in_order = dict.fromkeys((*DISTRIBUTIONS, *libraries))
    versions += [f"{name} {libraries[name]}" for name in in_order if name in libraries]
    if versions:
        rows.append(("versions", ", ".join(versions)))
    if revision := status.get("revision"):
        rows.append(("revision", revision))
    if patches := status.get("patches"):
        rows.append(("patches", _patches(patches)))
    return _table(rows)


def _patches(patches: Sequence[Object]) -> str:
    """Return how many are in each state; by name and reason only those that failed."""
    states = [patch.get("state", "") for patch in patches]
    counts = ", ".join(f"{states.count(state)} {state.lower()}" for state in dict.fromkeys(sorted(states)))
    failed = "; ".join(
        f"{patch.get('name')}: {patch.get('reason')}" for patch in patches if patch.get("state") == "Failed"
    )
    return f"{counts}: {failed}" if failed else counts


def _grammar(grammar: Object) -> Row:
    took = grammar.get("compileMillis", 0)
    said = [f"compiled in {took} ms"] if took else []
    return grammar.get("name", ""), grammar.get("state", ""), ", ".join([*said, *_said(grammar, "reason")])


def _pod(pod: Object, now: dt.datetime) -> Node:
    state = "ready" if pod.get("ready") else ", ".join(["not ready", *_said(pod, "reason")])
    workers = pod.get("grammarWorkers") or {}
    if pod.get("ranks"):
        counted = f"{workers.get('ready', 0)} ready, {workers.get('restarts', 0)} restarts"
        state += f", grammar workers: {counted}"
    below = [*_table(map(_rank, pod.get("ranks") or ()))]
    if failure := pod.get("lastFailure"):
        code = failure.get("code", "")
        text = f"last failure {_since(failure.get('time'), now)} ago, {code}: {failure.get('message', '')}"
        to_do = (Node(f"to do: {advice.CODES[code]}"),) if code in advice.CODES else ()
        below.append(Node(text.rstrip(": "), to_do))
    return Node(f"{pod.get('name', '')}  {state}", tuple(below))


def _rank(rank: Object) -> Row:
    desyncs = rank.get("desyncs", 0)
    return (
        f"rank {rank.get('rank')}",
        rank.get("state", ""),
        f"differed from the others {desyncs} times" if desyncs else "",
    )


def _said(item: Object, field: str) -> list[str]:
    return [item[field]] if item.get(field) else []


def _since(stamp: Any, now: dt.datetime) -> str:
    """Return how long ago a time was, in the largest unit that is not 0."""
    try:
        then = dt.datetime.fromisoformat(str(stamp))
    except ValueError:
        return "?"
    if then.tzinfo is None:
        then = then.replace(tzinfo=dt.UTC)
    past_s = max(int((now - then).total_seconds()), 0)
    return next((f"{past_s // unit_s}{unit}" for unit_s, unit in _UNITS if past_s >= unit_s), f"{past_s}s")


def _condition(model: Object, name: str) -> Object:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == name), {})


def _generation(model: Object) -> int:
    return int(model["metadata"].get("generation", 0))


def _table(rows: Iterable[Row]) -> tuple[Node, ...]:
    """Return a line for each row, its columns below one another."""
    all_rows = list(rows)
    if not all_rows:
        return ()
    widths = [max(map(len, column)) for column in zip(*all_rows, strict=True)]
    return tuple(
        Node("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for row in all_rows
    )


def _draw(nodes: Sequence[Node], indent: str = "") -> Iterator[str]:
    for number, node in enumerate(nodes, 1):
        branch, below = ("└─ ", "   ") if number == len(nodes) else ("├─ ", "│  ")
        # A message may have lines of its own.
        first, *others = node.text.splitlines() or [""]
        yield f"{indent}{branch}{first}"
        yield from (f"{indent}{below}{line}" for line in others)
        yield from _draw(node.below, indent + below)

"""How a GuidedModel is, as a tree of text; made from what the API server serves, by whatever release."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from guided_operator.cli.cluster import advice
from guided_operator.cli.cluster.pages import Pages, is_cut

Object = Mapping[str, Any]
Row = Sequence[str]  # columns


@dataclass(frozen=True, slots=True)
class Node:
    """A line, and what stands below it."""

    text: str
    below: tuple["Node", ...] = ()


_PATCHES: Final = ("applied", "skipped", "failed")
_GRAMMARS: Final = ("ready", "pending", "stale", "failed")
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))
_COMPONENTS: Final = {"vllm": "vLLM", "guidedmodel": "plugin"}
_NO_PAGES: Final = Pages()


def is_ready(model: Object) -> bool:
    """Say whether a model is Ready, and that of the spec as it is now."""
    found = _condition(model, "Ready")
    return found.get("status") == "True" and found.get("observedGeneration", 0) >= _generation(model)


def tree(model: Object, now: dt.datetime, pages: Pages = _NO_PAGES) -> str:
    """Return the whole of it, a line for each thing, without an end of line.

    Parameters
    ----------
    pages
        Of the model's pods, where they were read.
    """
    metadata = model["metadata"]
    top = f"GuidedModel {metadata.get('namespace', 'default')}/{metadata['name']}: {_summary(model)}"
    return "\n".join([top, *_draw(tuple(_parts(model, now, pages)))])


def _summary(model: Object) -> str:
    if "deletionTimestamp" in model["metadata"]:
        return "being deleted"
    if is_ready(model):
        return "ready"
    reason = _condition(model, "Ready").get("reason")
    return f"not ready, {reason}" if reason else "not ready"


def _parts(model: Object, now: dt.datetime, pages: Pages) -> Iterator[Node]:
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
    if grammars := _listed(status, "grammars"):
        text = "grammars"
        if left := sum(status["grammars"].get(state, 0) for state in _GRAMMARS) - len(grammars):
            text += f"  the worst {len(grammars)}; {left} more"
        yield Node(text, _table(map(_grammar, grammars)))
    if pods := tuple(_pods(status, pages, now)):
        ready, wanted = status.get("readyReplicas", 0), model["spec"].get("replicas", 1)
        yield Node(f"pods  {ready} of {wanted} ready", pods)
    steps = advice.steps(model)
    yield Node("next", tuple(map(Node, steps))) if steps else Node("next  nothing to do")


def _engine(model: Object) -> tuple[Node, ...]:
    status = model.get("status") or {}
    resolved = status.get("resolved") or {}
    rows = []
    if image := resolved.get("image"):
        rows.append(("image", image))
    versions = [
        f"{_COMPONENTS.get(each.get('name', ''), each.get('name', ''))} {each.get('version', '')}"
        for each in resolved.get("components") or ()
    ]
    versions += [f"model runner {each}" for each in _said(resolved, "modelRunner")]
    if versions:
        rows.append(("versions", ", ".join(versions)))
    if revision := status.get("revision"):
        rows.append(("revision", revision))
    if drafts := _speculation(status):
        rows.append(("speculation", drafts))
    if counts := _patches(status):
        rows.append(("patches", counts))
    if failures := _processor_failures(status):
        rows.append(("logits processors", failures))
    return _table(rows)


def _listed(status: Object, of: str) -> Sequence[Object]:
    found: Sequence[Object] = (status.get(of) or {}).get("worst") or ()
    return found


def _patches(status: Object) -> str:
    """Return how many are in each state; by name and reason only those that failed."""
    found = status.get("patches") or {}
    counts = ", ".join(f"{found[state]} {state}" for state in _PATCHES if found.get(state))
    failed = "; ".join(
        f"{patch.get('name')}: {patch.get('reason')}"
        for patch in _listed(status, "patches")
        if patch.get("state") == "Failed"
    )
    return f"{counts}: {failed}" if failed else counts


def _speculation(status: Object) -> str:
    """Return how the engines speculate, as far as it is known."""
    found = status.get("speculation") or {}
    said = _said(found, "method")
    if tokens := found.get("numTokens"):
        least, most = tokens.get("min"), tokens.get("max")
        said.append(f"{least if least == most else f'{least} to {most}'} draft tokens")
    if "async" in found:
        said.append("asynchronous" if found["async"] else "synchronous")
    said += [
        f"{found[rate]} % {word}"
        for rate, word in (("acceptedRate", "accepted"), ("forbiddenRate", "forbidden"))
        if rate in found
    ]
    return ": ".join(filter(None, (", ".join(said), found.get("fallback"))))


def _processor_failures(status: Object) -> str:
    """Return which logits processors sequences have ended for, and how many."""
    counts = [
        f"{each.get('name')} ({each['failures']})"
        for each in _listed(status, "logitsProcessors")
        if each.get("failures")
    ]
    return f"sequences ended for {', '.join(counts)}" if counts else ""


def _grammar(grammar: Object) -> Row:
    took = grammar.get("compileMillis", 0)
    said = [f"compiled in {took} ms"] if took else []
    return grammar.get("name", ""), grammar.get("state", ""), ", ".join([*said, *_said(grammar, "reason")])


def _pods(status: Object, pages: Pages, now: dt.datetime) -> Iterator[Node]:
    """Yield the pods that the status lists, then those whose pages were read."""
    seen = {pod.get("name", ""): pod for pod in _listed(status, "pods")}
    for name in dict.fromkeys((*seen, *pages.of_pods)):
        pod, page = {"name": name, **seen.get(name, {})}, pages.of_pods.get(name)
        ranks = [rank for rank in _listed(status, "ranks") if rank.get("pod") == name]
        if page is None or isinstance(page, str):
            yield _pod(pod, ranks, now, error=page or "")
        else:
            told = msgspec.to_builtins(page)
            ranks = told.pop("ranks")
            bad = [rank for rank in ranks if rank["state"] == "Missing"]
            counts = {"total": len(ranks), "missing": len(bad)}
            yield _pod({**told, **pod, "ranks": counts}, ranks, now)
    left = (status.get("pods") or {}).get("total", 0) - len({*seen, *pages.of_pods})
    if left > 0:
        yield Node(f"{left} more{': ' if pages.error else ''}{pages.error}")


def _pod(pod: Object, ranks: Sequence[Object], now: dt.datetime, *, error: str = "") -> Node:
    unready = ", ".join(["not ready", *_said(pod, "reason")]) if "ready" in pod else "not known"
    state = "ready" if pod.get("ready") else unready
    workers, counts = pod.get("grammarWorkers") or {}, pod.get("ranks") or {}
    if total := counts.get("total", 0):
        state += f", {total - counts.get('missing', 0)} of {total} ranks connected"
        counted = f"{workers.get('ready', 0)} ready, {workers.get('restarts', 0)} restarts"
        state += f", grammar workers: {counted}"
    bad = [rank for rank in ranks if rank.get("state") == "Missing" or rank.get("desyncs")]
    below = [*_table(map(_rank, bad))]
    if is_cut(counts, ranks):
        below.append(Node("more ranks are missing, or differed from the others"))
    if error:
        below.append(Node(f"its status page cannot be read: {error}"))
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

"""A status stays small at 64 pods of 128 ranks, whatever they say, and counts are sums over all of them."""

import dataclasses
import datetime as dt
import json
from typing import Any

import pytest

from guided_contract import status
from guided_contract.status import PodStatus
from guided_operator.api.crd import schema_of
from guided_operator.api.status import MAX_BYTES, Condition, GuidedModelStatus
from guided_operator.kube.pod_view import ContainerView
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
PODS, RANKS = 64, 128
GRAMMARS = [f"{'g' * 60}{number:03}" for number in range(64)]
LETTERS = ("x", "é", "<", '"', "😀", "\u2028", "\n")


def size_in_go(value: Any) -> int:
    """Return the bytes of a value as the API server's encoding/json writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + sum(6 - len(each.encode()) for each in text if each in "<>&\u2028\u2029")


def longest(schema: Any) -> Any:
    """Return the largest value that a schema takes, in letters of six bytes where it takes any letter."""
    if "enum" in schema:
        return max(schema["enum"], key=len)
    match schema["type"]:
        case "object" if "additionalProperties" in schema:  # by names that are ours
            names = [f"{number:032}" for number in range(schema["maxProperties"])]
            return dict.fromkeys(names, longest(schema["additionalProperties"]))
        case "object":
            return {name: longest(part) for name, part in schema["properties"].items()}
        case "array":
            return [longest(schema["items"])] * schema["maxItems"]
        case "string":
            return ("x" if {"pattern", "format"} & schema.keys() else "<") * schema["maxLength"]
        case "boolean" | "integer":
            return schema.get("maximum", (1 << 63) - 1)
    raise AssertionError(schema)


def test_the_largest_that_the_schema_takes_is_within_the_bound() -> None:
    assert size_in_go(longest(schema_of(GuidedModelStatus))) <= MAX_BYTES


def worst_page(words: str) -> PodStatus:
    ranks = [
        status.RankStatus(rank=rank, state="Missing", desyncs=(-7, (1 << 63) - 1)[rank % 2])
        for rank in range(-1, RANKS)
    ]
    grammars = [status.GrammarStatus(name=name, state="Failed", reason=words) for name in GRAMMARS]
    return PodStatus(
        ready=False,
        reason=f"Reason{words}",
        message=words,
        versions=dict.fromkeys(("vllm", "xgrammar", "modelRunner", *map(str, range(100))), words),
        unsupported=words,
        ranks=ranks,
        desync=words,
        exhausted=words,
        grammars=grammars,
        last_failure=status.Failure(code=words, message=words, time=words),
    )


@pytest.mark.parametrize("letter", LETTERS)
def test_a_status_of_8192_ranks_is_within_the_bound(letter: str) -> None:
    """Also beside as many pods of an older revision."""
    words = letter * 5000
    references = {"name": "t" * 253, "key": "k" * 253}
    grammars = [{"name": name, "kind": "Regex", "configMapKeyRef": references} for name in GRAMMARS]
    speculative = {"method": "NGram", "numTokens": 3}
    raw = model(replicas=PODS, guidedDecoding={"grammars": grammars}, speculative=speculative)
    back_off = ContainerView("e" * 63, 1 << 40, "CrashLoopBackOff", words, 1, "Error", words[:500])
    state: dict[str, Any] = {"ready": False, "image": f"registry.test/{words}", "containers": (back_off,)}
    pods = [pod(f"{number:02}-{'p' * 250}", revision_of(raw), **state) for number in range(PODS)]
    old = [pod(f"{number:02}-{'q' * 250}", "o" * 63, **state) for number in range(PODS)]
    pages = {each.uid: Page(worst_page(words)) for each in pods}
    observed = dataclasses.replace(applied(seen(raw)), pods=(*pods, *old), pages=pages)
    made = make_status(situation(observed), NOW)
    assert made.ranks.total == PODS * RANKS
    assert size_in_go(to_object(made)) <= MAX_BYTES
    assert GuidedModelStatus.model_validate(to_object(made)) == made, "it is as long as its schema takes"


def test_a_rank_of_a_group_is_counted_once() -> None:
    """The first node's sidecar tells of all ranks, another's of its own; what either misses is missing."""
    new = revision_of()
    first, second = (pod(f"m-0-{node}", new, group="m-0", node=node) for node in range(2))
    ranks = [status.RankStatus(rank=rank, state="Connected") for rank in range(4)]
    unlinked = [*ranks[:3], status.RankStatus(rank=3, state="Missing")]
    pages = {
        first.uid: Page(PodStatus(ready=True, ranks=unlinked)),
        second.uid: Page(PodStatus(ready=True, ranks=ranks[2:])),
    }
    observed = dataclasses.replace(applied(seen()), pods=(first, second), pages=pages)
    made = make_status(situation(observed), NOW)
    assert (made.ranks.total, made.ranks.missing) == (4, 1)


def test_nothing_in_a_status_moves_a_terminals_cursor_or_turns_its_text() -> None:
    """Found by an attack: a container's last words came as they were."""
    hostile = "Error \x1b]0;pwned\x07\x1b[2J\u202e\x9b31m\u200b\u2066\U000e0041 done"
    then = "2026-01-01T00:00:00Z"
    condition = Condition(
        type="Ready", status="False", reason="Crashed", message=hostile, last_transition_time=then
    )
    assert condition.message == "Error ]0;pwned[2J31m done"
    assert GuidedModelStatus(revision="\x1b").revision == "…"

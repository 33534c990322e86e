"""A status stays small at 64 pods of 128 ranks, and what it leaves out is counted: sums of drawn pages."""

import dataclasses
import datetime as dt
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from guided_contract import status, wire
from guided_contract.status import PodStatus
from guided_operator.api.crd import schema_of
from guided_operator.api.status import MAX_BYTES, Condition, Failure, GuidedModelStatus
from guided_operator.kube.pod_view import ContainerView, PodView
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
PODS, RANKS = 64, 128
GRAMMARS = [f"{'g' * 60}{number:03}" for number in range(64)]
LETTERS = ("x", "é", "<", '"', "😀", "\u2028", "\n")
Told = tuple[PodView, PodStatus | None]


def size_in_go(value: Any) -> int:
    """Return the bytes of a value as the API server's encoding/json writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + sum(6 - len(each.encode()) for each in text if each in "<>&\u2028\u2029")


def longest(schema: Any) -> Any:
    """Return the largest value that a schema takes, in letters of one byte."""
    if "enum" in schema:
        return max(schema["enum"], key=len)
    match schema["type"]:
        case "object":
            return {name: longest(part) for name, part in schema["properties"].items()}
        case "array":
            return [longest(schema["items"])] * schema["maxItems"]
        case "string":
            return "x" * schema["maxLength"]
        case "boolean":
            return False
        case "integer":
            return schema.get("maximum", (1 << 63) - 1)
    raise AssertionError(schema)


def test_the_largest_that_the_schema_takes_is_within_the_bound() -> None:
    assert size_in_go(longest(schema_of(GuidedModelStatus))) <= MAX_BYTES


def drawn_page(chance: random.Random, words: str) -> PodStatus:
    """Return a page whose ranks are as they come, and whose texts are long."""
    return PodStatus(
        ready=chance.random() < 0.5,
        reason=f"Reason{words}"[:9999],
        message=words,
        versions=dict.fromkeys(("vllm", "guidedmodel", "xgrammar", "llguidance", "modelRunner"), words),
        unsupported=words,
        patches=[
            wire.Patch(
                name=f"{number:02}{'p' * 62}",
                state=chance.choice(("Applied", "Skipped", "Failed")),
                reason=words,
            )
            for number in range(40)
        ],
        ranks=[
            status.RankStatus(
                rank=rank,
                state=chance.choice(("Connected", "Connected", "Missing")),
                desyncs=chance.choice((0, 0, 3, (1 << 63) - 1, -7)),
            )
            for rank in range(-1, RANKS)
        ],
        desync=words,
        exhausted=words,
        grammars=[
            status.GrammarStatus(
                name=name,
                state=chance.choice(("Ready", "Pending", "Stale", "Failed")),
                compile_millis=(1 << 63) - 1,
                reason=words,
            )
            for name in GRAMMARS
        ],
        grammar_workers=status.WorkersStatus(ready=(1 << 63) - 1, restarts=1 << 40),
        last_failure=status.Failure(code=words, message=words, time=words),
    )


def drawn(seed: int) -> tuple[Situation, list[Told]]:
    """Return 64 pods, some of an older revision, some silent, with the pages of those that are not."""
    chance = random.Random(seed)
    references = {"name": "t" * 253, "key": "k" * 253}
    grammars = [{"name": name, "kind": "Regex", "configMapKeyRef": references} for name in GRAMMARS]
    raw = model(replicas=PODS, guidedDecoding={"grammars": grammars}, telemetry=TRACED, speculative=NGRAM)
    new = revision_of(raw)
    told: list[Told] = []
    for number in range(PODS):
        words = chance.choice(LETTERS) * chance.choice((600, 5000))
        back_off = ContainerView("e" * 63, 1 << 40, "CrashLoopBackOff", words, 1, "Error", words[:500])
        one = pod(
            f"{number:02}-{'p' * 250}",
            chance.choice((new, new, new, "o" * 63)),
            ready=chance.random() < 0.5,
            image=f"registry.test/{words}",
            containers=(back_off,) if chance.random() < 0.3 else (),
        )
        is_read = one.revision == new and chance.random() < 0.9
        told.append((one, drawn_page(chance, words) if is_read else None))
    pages = {one.uid: Page(page, "" if page else "no answer") for one, page in told}
    observed = dataclasses.replace(applied(seen(raw)), pods=tuple(one for one, _ in told), pages=pages)
    return situation(observed), told


TRACED = {"endpoint": "http://collector:4318"}
NGRAM = {"method": "NGram", "numTokens": 3}
SEEDS = pytest.mark.parametrize("seed", range(4))


@SEEDS
def test_a_status_of_8192_ranks_is_within_the_bound(seed: int) -> None:
    found, _ = drawn(seed)
    made = make_status(found, NOW)
    assert made.ranks.total > 4000
    assert size_in_go(to_object(made)) <= MAX_BYTES
    assert GuidedModelStatus.model_validate(to_object(made)) == made, "it is as long as its schema takes"


def ranks_of(told: list[Told]) -> Iterator[tuple[str, status.RankStatus]]:
    for one, page in told:
        for rank in page.ranks if page else ():
            if rank.rank >= 0:
                yield one.name, rank


@SEEDS
def test_its_sums_are_those_of_all_pages(seed: int) -> None:
    found, told = drawn(seed)
    made = make_status(found, NOW)
    ranks = [rank for _, rank in ranks_of(told)]
    assert (made.ranks.total, made.ranks.missing, made.ranks.desynced) == (
        len(ranks),
        len([rank for rank in ranks if rank.state == "Missing"]),
        len([rank for rank in ranks if rank.desyncs > 0]),
    )
    assert (made.pods.total, made.pods.ready, made.pods.reported) == (
        PODS,
        len([one for one, _ in told if one.ready]),
        len([page for _, page in told if page]),
    )
    for name, states in (("patches", ("Applied", "Skipped", "Failed")), ("grammars", STATES)):
        worst: dict[str, str] = {}
        for page in (page for _, page in told if page):
            for each in getattr(page, name):
                worst[each.name] = max(worst.get(each.name, states[0]), each.state, key=states.index)
        counts = {state: getattr(getattr(made, name), state.lower()) for state in states}
        assert counts == {state: [*worst.values()].count(state) for state in states}


STATES = ("Ready", "Stale", "Pending", "Failed")


@SEEDS
def test_the_worst_ranks_and_pods_are_told_in_the_order_that_is_documented(seed: int) -> None:
    found, told = drawn(seed)
    made = make_status(found, NOW)
    order = [
        (rank.state != "Missing", -max(rank.desyncs, 0), name, rank.rank) for name, rank in ranks_of(told)
    ]
    assert [(one.pod, one.rank) for one in made.ranks.worst] == [each[2:] for each in sorted(order)[:8]]

    def badness(one: PodView, page: PodStatus | None) -> tuple[Any, ...]:
        ranks = [rank for rank in page.ranks if rank.rank >= 0] if page else []
        missing = len([rank for rank in ranks if rank.state == "Missing"])
        desynced = len([rank for rank in ranks if rank.desyncs > 0])
        return one.ready or not one.containers, one.ready, -missing, -desynced, one.name

    worst = sorted(badness(*each) for each in told)[:8]
    assert [one.name for one in made.pods.worst] == [each[-1] for each in worst]


def test_missing_before_desync_before_fine() -> None:
    ranks = [
        status.RankStatus(rank=0, state="Connected"),
        status.RankStatus(rank=1, state="Connected", desyncs=2),
        status.RankStatus(rank=2, state="Connected", desyncs=9),
        status.RankStatus(rank=3, state="Missing"),
    ]
    new = revision_of(model(replicas=3))
    pods = [pod(name, new) for name in "abc"]
    told = [PodStatus(ready=True, ranks=part) for part in (ranks[:1], ranks[1:3], ranks[3:])]
    pages = {one.uid: Page(page) for one, page in zip(pods, told, strict=True)}
    observed = dataclasses.replace(applied(seen(model(replicas=3))), pods=tuple(pods), pages=pages)
    made = make_status(situation(observed), NOW)
    assert [one.rank for one in made.ranks.worst] == [3, 2, 1, 0]
    assert [one.name for one in made.pods.worst] == ["c", "b", "a"]


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
    assert [one.ranks.total for one in made.pods.worst] == [4, 2]


def test_nothing_in_a_status_moves_a_terminals_cursor_or_turns_its_text() -> None:
    """Found by an attack: a container's last words came as they were."""
    hostile = "Error \x1b]0;pwned\x07\x1b[2J\u202e\x9b31m\u200b\u2066\U000e0041 done"
    then = "2026-01-01T00:00:00Z"
    condition = Condition(
        type="Ready", status="False", reason="Crashed", message=hostile, last_transition_time=then
    )
    assert condition.message == "Error ]0;pwned[2J31m done"
    assert Failure(code="\x1b", message="a", time=then).code == "…"

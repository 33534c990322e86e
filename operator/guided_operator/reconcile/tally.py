"""What many pods say, for the status: counts, and the worst few. Pages are untrusted."""

from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest
from typing import Final, NamedTuple

from guided_contract import status
from guided_contract.status import PodStatus
from guided_operator.api.speculation_status import TokensNow
from guided_operator.api.status import (
    MAX_GRAMMARS,
    MAX_PATCHES,
    MAX_PODS,
    MAX_PROCESSORS,
    MAX_RANKS,
    Failure,
    Grammars,
    GrammarState,
    GrammarWorkers,
    Patches,
    PatchStatus,
    Pods,
    PodState,
    Processors,
    ProcessorState,
    RankCounts,
    Ranks,
    RankState,
)
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.conditions.pod_trouble import trouble, waiting

_GRAMMARS: Final = ("Failed", "Pending", "Stale", "Ready")  # the worst first
_PATCHES: Final = ("Failed", "Skipped", "Applied")
_SILENT: Final = PodStatus(ready=False)
_UNREPORTED: Final = status.GrammarStatus(name="", state="Pending", reason="no pod has reported it yet")


class _Rank(NamedTuple):
    """A rank, as the pod says in which it is worst; the worst first."""

    is_connected: bool
    negated_desyncs: int
    pod: str
    rank: int


def patches(pages: Iterable[PodStatus]) -> Patches:
    """Return every patch once; where pods differ, the worst state counts."""
    worst: dict[str, PatchStatus] = {}
    for page in pages:
        for each in page.patches:
            if not each.name:
                continue
            one = PatchStatus(name=each.name, state=each.state, reason=each.reason)
            worst[one.name] = min(worst.get(one.name, one), one, key=_patch_order)
    states = [one.state for one in worst.values()]
    return Patches(
        applied=states.count("Applied"),
        skipped=states.count("Skipped"),
        failed=states.count("Failed"),
        worst=nsmallest(MAX_PATCHES, worst.values(), key=_patch_order),
    )


def _patch_order(patch: PatchStatus) -> tuple[int, str]:
    return _PATCHES.index(patch.state), patch.name


def grammars(situation: Situation, pages: Iterable[PodStatus]) -> Grammars:
    """Return every grammar of the spec, as the pod has it in which it is worst."""
    model, faults = situation.plan.model, situation.plan.grammar_faults
    told: dict[str, status.GrammarStatus] = {}
    for one in (one for page in pages for one in page.grammars):
        told[one.name] = min(told.get(one.name, one), one, key=lambda each: _GRAMMARS.index(each.state))
    found = []
    for grammar in model.spec.guided_decoding.grammars if model else ():
        one = told.get(grammar.name, _UNREPORTED)
        found.append(
            GrammarState(
                name=grammar.name,
                state=one.state,
                compile_millis=one.compile_millis,
                reason=faults.get(grammar.name) or one.reason,
            )
        )
    states = [one.state for one in found]
    return Grammars(
        ready=states.count("Ready"),
        pending=states.count("Pending"),
        stale=states.count("Stale"),
        failed=states.count("Failed"),
        worst=nsmallest(MAX_GRAMMARS, found, key=lambda each: (_GRAMMARS.index(each.state), each.name)),
    )


def logits_processors(situation: Situation) -> Processors:
    """Return every logits processor of the spec, as all current pods that have reported tell of it.

    The pods of a group over several nodes tell of the same sequences: the one that has seen most counts.
    """
    model = situation.plan.model
    pending = set()
    failures: dict[str, dict[str, int]] = {}
    for pod, page in situation.pages:
        for each in page.logits_processors:
            of_groups = failures.setdefault(each.name, {})
            of_groups[pod.group] = max(of_groups.get(pod.group, 0), each.failures)
            if each.state != "Loaded":
                pending.add(each.name)
    found = [
        ProcessorState(
            name=name,
            state="Loaded" if name in failures.keys() - pending else "Pending",
            failures=sum(failures.get(name, {}).values()),
        )
        for name in (processor.name for processor in (model.spec.logits_processors if model else ()))
    ]
    states = [one.state for one in found]
    return Processors(
        loaded=states.count("Loaded"),
        pending=states.count("Pending"),
        worst=nsmallest(MAX_PROCESSORS, found, key=_processor_order),
    )


def _processor_order(processor: ProcessorState) -> tuple[bool, int, str]:
    return processor.state == "Loaded", -processor.failures, processor.name


def ranks(situation: Situation) -> Ranks:
    """Return the ranks of the current pods that have reported."""
    found = _ranks(situation.pages)
    counts = _counts(found)
    worst = [
        RankState(
            pod=one.pod,
            rank=one.rank,
            state="Connected" if one.is_connected else "Missing",
            desyncs=-one.negated_desyncs,
        )
        for one in nsmallest(MAX_RANKS, found)
    ]
    return Ranks(total=counts.total, missing=counts.missing, desynced=counts.desynced, worst=worst)


def _ranks(pages: Iterable[tuple[PodView, PodStatus]]) -> Collection[_Rank]:
    """Return each rank once: that of a group over several nodes is told by the first and by its own."""
    worst: dict[tuple[str, int], _Rank] = {}
    for pod, page in pages:
        for each in page.ranks:
            if each.rank >= 0:
                key = pod.group, each.rank
                one = _Rank(each.state == "Connected", -max(each.desyncs, 0), pod.name, each.rank)
                worst[key] = min(worst.get(key, one), one)
    return worst.values()


def _counts(found: Collection[_Rank]) -> RankCounts:
    return RankCounts(
        total=len(found),
        missing=sum(not one.is_connected for one in found),
        desynced=sum(one.negated_desyncs < 0 for one in found),
    )


def pods(situation: Situation) -> Pods:
    """Return the pods, of any revision; of the current one with what their sidecars say."""
    pages = {pod.uid: page for pod, page in situation.pages}
    counts = {pod.uid: _counts(_ranks([(pod, page)])) for pod, page in situation.pages}

    def order(pod: PodView) -> tuple[bool, bool, int, int, str]:
        of = counts.get(pod.uid, RankCounts())
        return trouble((pod,)) is None, pod.ready, -of.missing, -of.desynced, pod.name

    live = situation.live
    return Pods(
        total=len(live),
        ready=sum(pod.ready for pod in live),
        reported=len(pages),
        restarts=sum(map(_restarts, live)),
        worst=[_pod(pod, pages, counts) for pod in nsmallest(MAX_PODS, live, key=order)],
    )


def _pod(pod: PodView, pages: Mapping[str, PodStatus], counts: Mapping[str, RankCounts]) -> PodState:
    """Return a pod's state; what the kubelet says of it counts more than what its sidecar says."""
    seen, page = trouble((pod,)) or waiting((pod,)), pages.get(pod.uid, _SILENT)
    failure, workers = page.last_failure, page.grammar_workers
    return PodState(
        name=pod.name,
        revision=pod.revision,
        ready=pod.ready,
        reason=seen.reason if seen else page.reason,
        message=seen.message if seen else page.message,
        container=seen.container if seen else "",
        restarts=_restarts(pod),
        ranks=counts.get(pod.uid, RankCounts()),
        grammar_workers=GrammarWorkers(ready=workers.ready, restarts=workers.restarts),
        last_failure=_failure(failure) if failure else None,
    )


def _restarts(pod: PodView) -> int:
    return sum(container.restarts for container in pod.containers)


def _failure(failure: status.Failure) -> Failure:
    return Failure(code=failure.code or "unknown", message=failure.message, time=failure.time or "unknown")


class DraftRates(NamedTuple):
    """Percentages of draft tokens; None where there were none to be a part of.

    `accepted` is of those that grammars allow, as in vLLM's own counts; `forbidden` of all.
    """

    accepted: int | None
    forbidden: int | None


def draft_rates(pages: Collection[PodStatus]) -> DraftRates:
    """Return what became of guided sequences' draft tokens."""
    drafts = [page.drafts for page in pages]
    proposed = sum(max(0, one.proposed) for one in drafts)
    accepted = sum(max(0, one.accepted) for one in drafts)
    forbidden = sum(max(0, one.forbidden) for one in drafts)
    return DraftRates(_percentage(accepted, proposed - forbidden), _percentage(forbidden, proposed))


def _percentage(part: int, whole: int) -> int | None:
    return min(100, round(100 * part / whole)) if whole > 0 else None


def tokens_now(pages: Iterable[PodStatus]) -> TokensNow | None:
    """Return how many draft tokens the engines propose at present; None where none has made a step.

    Of one that chooses by load what it chose: its last step may have tried another number.
    """
    known: list[tuple[int, int]] = []
    for page in pages:
        if (chosen := page.drafts.chosen) is not None:
            known.append((chosen, chosen))
        elif page.speculation.num_tokens is not None:
            known.append(page.speculation.num_tokens)
    numbers = [number for each in known for number in each]  # a page is untrusted, also in their order
    return TokensNow(min=min(numbers), max=max(numbers)) if numbers else None

"""What many pods are and say, counted for the status and the metrics. Pages are untrusted."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from guided_contract import names
from guided_contract.status import PodStatus
from guided_operator.api.status import Grammars, Processors, Ranks, TokensNow
from guided_operator.builders.workload import progress_deadline_s
from guided_operator.kube.pod_view import PodView, ready_replicas
from guided_operator.reconcile.conditions.pod_trouble import trouble
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.telemetry.metrics import Replicas

_GRAMMARS: Final = ("Ready", "Stale", "Pending", "Failed")  # the worst last


def grammars(situation: Situation) -> Grammars:
    """Count every grammar of the spec, as the pod has it in which it is worst."""
    model = situation.plan.model
    worst: dict[str, str] = {}
    for _, page in situation.pages:
        for one in page.grammars:
            worst[one.name] = max(worst.get(one.name, one.state), one.state, key=_GRAMMARS.index)
    asked = model.spec.guided_decoding.grammars if model else ()
    counts = Counter(worst.get(grammar.name, "Pending") for grammar in asked)
    return Grammars(
        ready=counts["Ready"], pending=counts["Pending"], stale=counts["Stale"], failed=counts["Failed"]
    )


def logits_processors(situation: Situation) -> Processors:
    """Count every logits processor of the spec; one that a pod has not loaded is pending."""
    model = situation.plan.model
    states: dict[str, set[str]] = {}
    for _, page in situation.pages:
        for one in page.logits_processors:
            states.setdefault(one.name, set()).add(one.state)
    asked = model.spec.logits_processors if model else ()
    loaded = sum(states.get(processor.name) == {"Loaded"} for processor in asked)
    return Processors(loaded=loaded, pending=len(asked) - loaded)


def ranks(situation: Situation) -> Ranks:
    """Count each rank once: that of a group over several nodes is told by the first and by its own."""
    found: dict[tuple[str, int], tuple[bool, bool]] = {}
    for pod, page in situation.pages:
        for one in page.ranks:
            if one.rank >= 0:
                missing, desynced = found.get((pod.group, one.rank), (False, False))
                found[pod.group, one.rank] = (missing or one.state == "Missing", desynced or one.desyncs > 0)
    return Ranks(
        total=len(found),
        missing=sum(missing for missing, _ in found.values()),
        desynced=sum(desynced for _, desynced in found.values()),
    )


def tokens_now(pages: Iterable[PodStatus]) -> TokensNow | None:
    """Return how many draft tokens the engines propose at present; None where none has made a step.

    Of one that chooses by load what it chose: its last step may have tried another number.
    """
    numbers: list[int] = []
    for page in pages:
        if page.drafts.chosen is not None:
            numbers.append(page.drafts.chosen)
        elif page.speculation.num_tokens is not None:
            numbers.extend(page.speculation.num_tokens)
    return TokensNow(min=min(numbers), max=max(numbers)) if numbers else None


def replicas(situation: Situation) -> Replicas:
    """Return how many replicas there should be, are ready, and start."""
    plan = situation.plan
    groups: dict[str, list[PodView]] = {}
    for pod in situation.live:
        groups.setdefault(pod.group, []).append(pod)
    return Replicas(
        revision=situation.revision,
        desired=plan.replicas,
        ready=ready_replicas(situation.live),
        updated=situation.ready,
        starting=sum(_starts(pods) for pods in groups.values()),
        start_s=progress_deadline_s(plan.model) if plan.model else 0.0,
    )


def _starts(pods: list[PodView]) -> bool:
    """Say whether a replica is on its way to its first request; an engine that ended, or began, is not."""
    return trouble(pods) is None and not all(pod.ready or _has_begun(pod) for pod in pods)


def _has_begun(pod: PodView) -> bool:
    engines = (each for each in pod.containers if each.name == names.ENGINE_CONTAINER)
    return any(not engine.starting and not engine.waiting_reason for engine in engines)

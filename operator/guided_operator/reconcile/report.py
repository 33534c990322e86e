"""Step four of a pass: the status, made from everything, written once and only if it changed."""

import datetime as dt
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from guided_contract import names, status
from guided_contract.backends import DISTRIBUTIONS
from guided_contract.status import PodStatus
from guided_operator.api.status import (
    Condition,
    Failure,
    GrammarState,
    GrammarWorkers,
    GuidedModelStatus,
    PatchStatus,
    PodState,
    RankState,
    Resolved,
    Speculation,
)
from guided_operator.builders import leader_selector
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import Api, ObjectNotFound
from guided_operator.kube.pod_view import PodView, leaders, ready_replicas
from guided_operator.reconcile import event_recorder
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.conditions.pod_trouble import trouble, waiting

Object = dict[str, Any]
logger = logging.getLogger(__name__)

MAX_PODS: Final = 64  # as in the CRD: a status is read by people and must fit into etcd
MAX_PATCHES: Final = 64
MAX_RANKS: Final = 128
# Field of `resolved` -> name in the sidecar's page.
_VERSIONS: Final = {
    "vllm_version": "vllm",
    "plugin_version": "guidedmodel",
    "model_runner": "modelRunner",
}
_WORSE: Final = {"Ready": 0, "Stale": 1, "Pending": 2, "Failed": 3}
_RANK_OF: Final = {"Applied": 0, "Skipped": 1, "Failed": 2}


async def report(api: Api, situation: Situation, now: dt.datetime) -> Object | None:
    """Write the status if it differs from the one seen; return the GuidedModel if it was written.

    Raises
    ------
    ApiError
        The API server did not take it.
    """
    seen = situation.observed.model.get("status") or {}
    made = make_status(situation, now)
    status = to_object(made)
    if status == seen:
        return None
    before = _seen_conditions(situation.observed.model)
    await event_recorder.record(api, situation.observed, before, made.conditions, now)
    key = situation.observed.key
    # One operation for the whole: what the operator no longer says goes. The uid keeps it from a namesake.
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": situation.observed.uid},
        {"op": "add", "path": "/status", "value": status},
    ]
    try:
        return await api.patch(kinds.model_path(key.namespace, key.name, "status"), patch, kind="json")
    except ObjectNotFound:
        logger.info("the GuidedModel was deleted before its status was written")
        return None


def to_object(status: GuidedModelStatus) -> Object:
    """Return the status as JSON: without what was not said, but with every count and flag."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def make_status(situation: Situation, now: dt.datetime) -> GuidedModelStatus:
    """Return the status that describes a situation; `now` is wall-clock time, for lastTransitionTime."""
    observed, plan = situation.observed, situation.plan
    pages = {pod.uid: page for pod, page in situation.pages}
    return GuidedModelStatus(
        observed_generation=observed.generation,
        replicas=leaders(situation.live),
        ready_replicas=ready_replicas(situation.live, plan.nodes),
        updated_replicas=leaders(situation.current),
        selector=_selector(situation),
        url=plan.url,
        revision=plan.revision,
        conditions=_conditions(decide(situation), _seen_conditions(observed.model), observed.generation, now),
        resolved=_resolved(situation),
        speculation=_speculation(situation),
        patches=_patches(pages.values()),
        grammars=_grammars(situation, pages.values()),
        pods=[_pod_state(pod, pages.get(pod.uid)) for pod in situation.live[:MAX_PODS]],
    )


def _selector(situation: Situation) -> str:
    model, name = situation.plan.model, situation.observed.key.name
    labels = leader_selector(model) if model else {names.LABEL_NAME: name}
    return ",".join(f"{label}={value}" for label, value in labels.items())


def _seen_conditions(model: Object) -> Mapping[str, Object]:
    return {item.get("type", ""): item for item in (model.get("status") or {}).get("conditions", ())}


def _conditions(
    findings: Mapping[str, Finding], seen: Mapping[str, Object], generation: int, now: dt.datetime
) -> list[Condition]:
    """Return the findings as conditions; the time of transition stays where the status stayed."""
    stamp = now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = []
    for name, finding in findings.items():
        old = seen.get(name, {})
        since = old.get("lastTransitionTime") if old.get("status") == finding.status else None
        made.append(
            Condition(
                type=name,
                status=finding.status,
                reason=finding.reason,
                message=_clip(finding.message, 4096),
                last_transition_time=since or stamp,
                observed_generation=generation,
            )
        )
    return made


def _resolved(situation: Situation) -> Resolved:
    """Return what the current pods run; the first by name that says so speaks for all."""
    model = situation.plan.model
    image = next((pod.image for pod in situation.current if pod.image), "")
    versions = next((page.versions for _, page in situation.pages if page.versions), {})
    return Resolved(
        image=_clip(image or (model.spec.engine.image if model else ""), 512),
        grammar_libraries={name: _clip(versions[name], 256) for name in DISTRIBUTIONS if name in versions},
        **{field: _clip(versions.get(name, ""), 256) for field, name in _VERSIONS.items()},
    )


def _speculation(situation: Situation) -> Speculation | None:
    """Return what the current pods tell of their guesses, together; rounded, so that it stays for a while."""
    model = situation.plan.model
    if model is None or model.spec.speculative is None:
        return None
    told = [page.speculation for _, page in situation.pages if page.speculation is not None]
    drafted = sum(max(each.drafted, 0) for each in told)  # the pages are untrusted
    accepted = sum(max(each.accepted, 0) for each in told)
    scheduling = {each.scheduling for each in told if each.scheduling}
    is_async = scheduling == {"Async"} if scheduling else None
    asked = model.spec.speculative
    lost = is_async is False and asked.async_scheduling != "Off" and asked.method != "NGram"
    return Speculation(
        acceptance_rate=f"{min(accepted / drafted, 1):.2f}" if drafted else "",
        **{"async": is_async},
        fallback="vLLM does not support asynchronous scheduling with these settings" if lost else "",
    )


def _patches(pages: Iterable[PodStatus]) -> list[PatchStatus]:
    """Return every patch once; where pods differ, the worst state counts."""
    worst: dict[str, PatchStatus] = {}
    for page in pages:
        for patch in page.patches:
            name = _clip(patch.name, 128)
            if name and (name not in worst or _RANK_OF[patch.state] > _RANK_OF[worst[name].state]):
                worst[name] = PatchStatus(name=name, state=patch.state, reason=_clip(patch.reason, 1024))
    return [worst[name] for name in sorted(worst)][:MAX_PATCHES]


def _grammars(situation: Situation, pages: Iterable[PodStatus]) -> list[GrammarState]:
    """Return every grammar of the spec, as the pod has it in which it is worst."""
    model, faults = situation.plan.model, situation.plan.grammar_faults
    told: dict[str, status.GrammarStatus] = {}
    for one in (one for page in pages for one in page.grammars):
        if one.name not in told or _WORSE[one.state] > _WORSE[told[one.name].state]:
            told[one.name] = one
    nothing = status.GrammarStatus(name="", state="Pending", reason="no pod has reported it yet")
    found = []
    for grammar in model.spec.guided_decoding.grammars if model else ():
        one = told.get(grammar.name, nothing)
        reason = faults.get(grammar.name) or one.reason
        found.append(
            GrammarState(
                name=grammar.name,
                state=one.state,
                compile_millis=max(one.compile_millis, 0),  # the page is untrusted
                reason=_clip(reason, 1024),
            )
        )
    return found


def _pod_state(pod: PodView, page: PodStatus | None) -> PodState:
    found = trouble((pod,)) or waiting((pod,))
    seen = PodState(
        name=pod.name,
        revision=pod.revision,
        ready=pod.ready,
        reason=found.reason if found else "",
        message=found.message if found else "",
        restarts=sum(container.restarts for container in pod.containers),
    )
    return seen if page is None else _with_page(seen, page)


def _with_page(seen: PodState, page: PodStatus) -> PodState:
    """Return the state with what the pod's sidecar says; what the kubelet says of it counts more."""
    ranks = {each.rank: each for each in page.ranks if each.rank >= 0}  # the page is untrusted
    return seen.model_copy(
        update={
            "reason": seen.reason or _clip(page.reason, 256),
            "message": seen.message or _clip(page.message, 1024),
            "ranks": [
                RankState(rank=rank, state=ranks[rank].state, desyncs=max(ranks[rank].desyncs, 0))
                for rank in sorted(ranks)[:MAX_RANKS]
            ],
            "grammar_workers": GrammarWorkers(
                ready=max(page.grammar_workers.ready, 0), restarts=max(page.grammar_workers.restarts, 0)
            ),
            "last_failure": _failure(page.last_failure) if page.last_failure else None,
        }
    )


def _failure(failure: status.Failure) -> Failure:
    return Failure(
        code=_clip(failure.code, 64) or "unknown",
        message=_clip(failure.message, 1024),
        time=_clip(failure.time, 64) or "unknown",
    )


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

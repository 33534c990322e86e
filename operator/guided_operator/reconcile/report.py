"""Step four of a pass: the status, made from everything, written once and only if it changed."""

import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from guided_contract import names
from guided_contract.backends import DISTRIBUTIONS
from guided_contract.combinations.row import FALLBACKS, Facts, Row
from guided_contract.combinations.table import that_hold
from guided_operator.api.speculative import Speculative
from guided_operator.api.status import Condition, GuidedModelStatus, Resolved, Speculation
from guided_operator.builders.objects import leader_selector
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectNotFound
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.pod_view import leaders, ready_replicas
from guided_operator.reconcile import tally
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.reconcile.event_recorder import Warn, record
from guided_operator.reconcile.observe import Observed

Object = dict[str, Any]
logger = logging.getLogger(__name__)

_NOT_ASYNC: Final = "vLLM schedules synchronously with the settings that these pods were made from"
_VERSIONS: Final = ("vllm", "guidedmodel", *DISTRIBUTIONS)


async def report(api: ApiServer, warn: Warn, observed: Observed, made: GuidedModelStatus) -> Object | None:
    """Write the status if it differs from the one seen, and warn of what is new in it.

    Returns the GuidedModel if it was written.

    Raises
    ------
    ApiError
        The API server did not take it.
    """
    key, model, status = observed.key, observed.model, to_object(made)
    if status == (model.get("status") or {}):
        return None
    # One operation for the whole: what the operator no longer says goes. The uid keeps it from a namesake.
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": observed.uid},
        {"op": "add", "path": "/status", "value": status},
    ]
    try:
        written = await api.patch(kinds.model_path(key.namespace, key.name, "status"), patch, kind="json")
    except ObjectNotFound:
        logger.info("the GuidedModel was deleted before its status was written")
        return None
    record(warn, model, _seen_conditions(model), made.conditions)
    return written


def to_object(status: GuidedModelStatus) -> Object:
    """Return the status as JSON: without what was not said, but with every count and flag."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def make_status(situation: Situation, now: dt.datetime) -> GuidedModelStatus:
    """Return the status that describes a situation; `now` is wall-clock time, for lastTransitionTime."""
    observed, plan = situation.observed, situation.plan
    return GuidedModelStatus(
        observed_generation=observed.generation,
        replicas=leaders(situation.live),
        ready_replicas=ready_replicas(situation.live),
        updated_replicas=leaders(situation.current),
        selector=_selector(situation),
        url=plan.url if situation.is_served else "",
        revision=situation.revision,
        conditions=_conditions(decide(situation), _seen_conditions(observed.model), observed.generation, now),
        resolved=_resolved(situation),
        speculation=_speculation(situation),
        grammars=tally.grammars(situation),
        logits_processors=tally.logits_processors(situation),
        ranks=tally.ranks(situation),
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
                message=finding.message,
                last_transition_time=since or stamp,
                observed_generation=generation,
            )
        )
    return made


def _resolved(situation: Situation) -> Resolved:
    """Return what the current pods run; the first by name that says so speaks for all."""
    image = next((pod.image for pod in situation.current if pod.image), "")
    versions = next((page.versions for _, page in situation.pages if page.versions), {})
    return Resolved(
        image=image,
        model_runner=versions.get("modelRunner", ""),
        versions={name: versions[name] for name in _VERSIONS if name in versions},
    )


def _speculation(situation: Situation) -> Speculation | None:
    """Return how the current pods speculate; None where neither they nor the spec do."""
    model = situation.plan.model
    asked = model.spec.speculative if model else None
    pages = [page for _, page in situation.pages]
    method = next((page.speculation.method for page in pages if page.speculation.method), None)
    if asked is None and method is None:
        return None
    scheduling = {page.scheduling for page in pages if page.scheduling}
    is_async = scheduling == {"Async"} if scheduling else None
    # Facts are those of the spec, which pods do not have while it is refused.
    rows = () if situation.plan.problems else that_hold(situation.facts or Facts(), *FALLBACKS)
    off = (page.drafts.off for page in pages if page.drafts.off)
    return Speculation(
        method=method,
        num_tokens=tally.tokens_now(pages),
        **{"async": is_async},
        fallback=next(off, "") or _fallback(asked, [*rows], is_async=is_async),
    )


def _fallback(asked: Speculative | None, rows: Sequence[Row], *, is_async: bool | None) -> str:
    """Return why less is done than was asked for, "" where nothing is known to be."""
    if asked is not None and is_async is False and asked.async_scheduling != "Off":
        sync = (row for row in rows if row.happens == "falls back to sync")
        said = (f"vLLM says: {row.words}" if row.words else row.message for row in sync)
        return next(said, _NOT_ASYNC)
    # Of drafts themselves, what vLLM's configuration does not show.
    drafts = (row for row in rows if row.happens == "falls back to few drafts")
    return next((row.message for row in drafts), "")

"""Step three of a pass: makes the cluster match the plan; what already matches is not written."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import (
    AccessForbidden,
    AlreadyExists,
    ApiError,
    ObjectInvalid,
    ObjectNotFound,
)
from guided_operator.kube.apiserver import FIELD_MANAGER, Api, Object
from guided_operator.kube.diff import differences, digest
from guided_operator.kube.kinds import Kind, is_owned
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import Plan
from guided_operator.reconcile.rollout import rollover

logger = logging.getLogger(__name__)

# As often, and for so long, is refused what may be over in a moment, before anybody is told.
MOST_DOUBTED: Final = 3
DOUBTED_S: Final = 30.0


class NameConflictError(Exception):
    """An object of the wanted name exists and is not ours."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a child is not as planned: a condition's reason and message.

    `auxiliary`: the pods need nothing of it. `doubtful`: the error, where it may be over in a moment.
    """

    reason: str
    message: str
    auxiliary: bool = False
    doubtful: ApiError | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What applying a plan came to. `live` holds what was written, by kind and name, as the server has it.

    `turning`: the pods are left as they are until their controller has caught up; look again soon.
    """

    faults: tuple[Fault, ...] = ()
    live: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    turning: bool = False


class Applier:
    """Writes children.

    `unsettled` counts applies after which the object still was not as wanted (an admission webhook, or
    another controller, has the last word); such an object is left alone until it or the wish changes.

    Parameters
    ----------
    api
        Writes only while this replica leads.
    tell
        Told each object as a write returned it.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        tell: Callable[[Kind, Object], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._tell = tell
        self._clock = clock
        self._refused: dict[str, list[float]] = {}  # by path, when the account's rights were refused
        self._unsettled: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.unsettled = 0

    async def apply(self, observed: Observed, plan: Plan) -> Outcome:
        """Create, repair and prune, in the plan's order; a child that is refused keeps no other from it.

        Only the pods wait: they are neither made nor changed while something that they need is refused.

        Raises
        ------
        ApiError
            The API server did not answer: worth a retry. So is what may be over in a moment and has not
            lasted: nothing is said of it before.
        """
        live: dict[tuple[str, str], Object] = {}
        if kinds.REVISION.name in observed.blind:
            return Outcome()  # what pods are to be made of is not known, and they must not be made anew
        faults: list[Fault] = []
        turning = False
        for wanted in plan.children:
            kind, name = kinds.BY_NAME[wanted["kind"]], wanted["metadata"]["name"]
            if kind.name in observed.blind or kind.name in observed.absent:
                continue
            if kind in kinds.WORKLOADS and _pods_lack(faults):
                continue
            seen = observed.child(kind, name)
            written = await self._tried(kind, seen, wanted, observed.uid)
            if isinstance(written, Fault):
                faults.append(written)
                continue
            if written is not None:
                self._tell(kind, written)
                live[kind.name, name] = kind.project(written)
            turning |= rollover.is_held(written or seen, wanted)
        faults += await self._prune(observed, plan, revisions=not _pods_lack(faults))
        for fault in faults:
            if fault.doubtful is not None:
                raise fault.doubtful
        return Outcome(tuple(faults), live, turning)

    async def _tried(
        self, kind: Kind, seen: Object | None, wanted: Object, owner_uid: str
    ) -> Object | Fault | None:
        """Make one child as wanted; return it if it was written or read anew, or why it is refused."""
        name, path = wanted["metadata"]["name"], _path(kind, wanted)
        try:
            written = await self._settle(kind, seen, wanted, owner_uid)
        except NameConflictError:
            message = f"{kind.name} {name} exists and does not belong to this GuidedModel"
            return Fault("NameConflict", message, kind.auxiliary)
        except ApiError as error:
            return self._fault(error, kind, name, path, auxiliary=kind.auxiliary)
        self._refused.pop(path, None)
        return written

    def _fault(self, error: ApiError, kind: Kind, name: str, path: str, *, auxiliary: bool) -> Fault:
        fault = _refusal(error, kind, name, auxiliary=auxiliary)
        if error.is_lasting or (auxiliary and not isinstance(error, AccessForbidden)):
            return fault
        return replace(fault, doubtful=error) if self._is_young(path) else fault

    def _is_young(self, path: str) -> bool:
        """Note a refusal that may be over in a moment, and return whether it has not lasted yet."""
        now_s = self._clock()
        since = self._refused.setdefault(path, [])
        since.append(now_s)
        del since[1:-MOST_DOUBTED]
        return len(since) < MOST_DOUBTED or now_s - since[0] < DOUBTED_S

    async def _is_known(self, seen: Object) -> bool:
        if not rollover.is_paused(seen):
            return False
        labelled = {"labelSelector": f"{names.LABEL_NAME}={seen['metadata']['name']}"}  # the model's, too
        path = kinds.api_path("apps/v1", kinds.REPLICA_SETS, seen["metadata"]["namespace"])
        return rollover.is_known(seen, (await self._api.read(path, params=labelled))["items"])

    async def _settle(self, kind: Kind, seen: Object | None, wanted: Object, owner_uid: str) -> Object | None:
        """Make one child as wanted; return it as stored if it was written or read anew."""
        marked = _marked(wanted)
        if seen is None:
            try:
                return await self._api.create(kind.path(wanted["metadata"]["namespace"]), marked)
            except AlreadyExists:  # the reflector has not seen it yet, or it lost our label
                seen = kind.project(await self._api.read(_path(kind, wanted)))
        if not is_owned(seen, owner_uid):
            raise NameConflictError
        if "deletionTimestamp" in seen["metadata"] or self._is_settled(seen, kind.compared(marked)):
            return None
        if kind is kinds.DEPLOYMENT and rollover.is_turn(seen, wanted) and not await self._is_known(seen):
            wanted = rollover.paused(wanted)
            marked = _marked(wanted)
            if self._is_settled(seen, marked):
                return None
        path = _path(kind, wanted)
        if _scales(seen, wanted):
            with contextlib.suppress(ObjectInvalid):  # another object by now: the long way looks first
                return await self._api.patch(path, _replicas_alone(seen, marked), kind="merge")
        return await self._update(path, marked, owner_uid)

    def _is_settled(self, seen: Object, marked: Object) -> bool:
        missing = tuple(differences(marked, seen))
        if not missing:
            self._unsettled.pop(seen["metadata"]["uid"], None)
            return True
        return self._unsettled.get(seen["metadata"]["uid"]) == (_mark_of(marked), missing)

    async def _update(self, path: str, marked: Object, owner_uid: str) -> Object:
        fresh = await self._api.read(path)  # the cache may lag: never write over what is not ours
        if not is_owned(fresh, owner_uid):
            raise NameConflictError
        adoption = _adopt_created_fields(fresh)
        if adoption:
            await self._api.patch(path, adoption, kind="json")
        written = await self._api.patch(path, marked, kind="apply")
        uid, missing = written["metadata"]["uid"], tuple(differences(marked, written))
        if missing:
            self.unsettled += 1
            self._unsettled[uid] = (_mark_of(marked), missing)
            logger.warning("%s is not as wanted after it was applied: %s", path, ", ".join(missing))
        return written

    async def _prune(self, observed: Observed, plan: Plan, *, revisions: bool) -> list[Fault]:
        """Delete what is no longer wanted, without `revisions` only what pods are not made of."""
        faults = []
        for kind, name in plan.surplus if revisions else [each for each in plan.surplus if each[0].pruned]:
            child = observed.child(kind, name)
            if child is None or not is_owned(child, observed.uid) or "deletionTimestamp" in child["metadata"]:
                continue
            path = kind.path(observed.key.namespace, name)
            try:
                with contextlib.suppress(ObjectNotFound):
                    await self._api.delete(path, uid=child["metadata"]["uid"])
            except ApiError as error:  # the pods do not need what is no longer wanted
                faults.append(self._fault(error, kind, name, path, auxiliary=True))
            else:
                self._refused.pop(path, None)
        return faults


def _pods_lack(faults: Iterable[Fault]) -> bool:
    """Return whether something is refused that pods need."""
    return any(not fault.auxiliary for fault in faults)


def _refusal(error: ApiError, kind: Kind, name: str, *, auxiliary: bool) -> Fault:
    """Return the fault of one object that the server refuses, in its words; another error is raised again.

    A webhook refuses with any status, and one that cannot be called is a fault of the server (500). It must
    hold up nothing else, but for a server that did not answer, or has too much to do.
    """
    if error.status in {0, 429} and not isinstance(error, AccessForbidden | ObjectInvalid):
        raise error
    reason = "Forbidden" if isinstance(error, AccessForbidden) else "ApplyRefused"
    return Fault(reason, f"{kind.name} {name}: {error}", auxiliary)


def _path(kind: Kind, item: Object) -> str:
    return kind.path(item["metadata"]["namespace"], item["metadata"]["name"])


def _marked(wanted: Object) -> Object:
    """Return the manifest with its own hash as an annotation: it differs also where a field was removed."""
    metadata = wanted["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_APPLIED: digest(wanted)}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def _mark_of(marked: Object) -> str:
    mark: str = marked["metadata"]["annotations"][names.ANNOTATION_APPLIED]
    return mark


def _scales(seen: Object, wanted: Object) -> bool:
    """Return whether the number of replicas alone is another, both than seen and than was wanted last."""
    if tuple(differences(wanted, seen)) != (".spec.replicas",):
        return False
    before = {**wanted, "spec": {**wanted["spec"], "replicas": seen["spec"].get("replicas")}}
    marks: Mapping[str, str] = seen["metadata"].get("annotations") or {}
    return marks.get(names.ANNOTATION_APPLIED) == digest(before)


def _replicas_alone(seen: Object, marked: Object) -> Object:
    """Return the merge patch that scales exactly the object seen.

    What autoscalers ask for all the time takes one request, where an apply takes two or three. It needs no
    look at who owns the object: it does not write that either.
    """
    metadata = {"uid": seen["metadata"]["uid"], "annotations": {names.ANNOTATION_APPLIED: _mark_of(marked)}}
    return {"metadata": metadata, "spec": {"replicas": marked["spec"]["replicas"]}}


def _adopt_created_fields(live: Object) -> list[Object]:
    """Return the JSON patch that makes fields of our create belong to our apply, or [] if they do.

    A POST records its fields under the operation Update. Server-side apply would leave them there, and
    a field that is no longer wanted would never be removed.
    """
    entries = live["metadata"].get("managedFields", [])
    mine = [
        entry for entry in entries if entry.get("manager") == FIELD_MANAGER and not entry.get("subresource")
    ]
    if [entry["operation"] for entry in mine] != ["Update"]:
        return []
    adopted = [{**entry, "operation": "Apply"} if entry is mine[0] else entry for entry in entries]
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": adopted},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]

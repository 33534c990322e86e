"""Step three of a pass: makes the cluster match the plan; what already matches is not written."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import (
    AccessForbidden,
    ApiError,
    ObjectInvalid,
    ObjectNotFound,
)
from guided_operator.kube.apiserver import ApiServer, Object
from guided_operator.kube.diff import differences, digest
from guided_operator.kube.key import Key
from guided_operator.kube.kinds import Kind, is_owned
from guided_operator.reconcile.known import Known, mark_of
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import Plan
from guided_operator.reconcile.rollout import rollover

logger = logging.getLogger(__name__)


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
        api: ApiServer,
        tell: Callable[[Kind, Object], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._tell = tell
        self._clock = clock
        self._known: dict[Key, Known] = {}
        self.unsettled = 0

    def forget(self, key: Key) -> None:
        """Note that a model is gone."""
        self._known.pop(key, None)

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
        known = self._known.setdefault(observed.key, Known())
        known.expire(observed, plan.desired, self._clock())
        faults: list[Fault] = []
        turning = False
        for wanted in plan.children:
            kind, name = kinds.BY_NAME[wanted["kind"]], wanted["metadata"]["name"]
            if kind.name in observed.blind or kind.name in observed.absent:
                continue
            if kind in kinds.WORKLOADS and _pods_lack(faults):
                continue
            seen = known.child(observed, kind, name)
            written = await self._tried(known, kind, seen, wanted, observed.uid)
            if isinstance(written, Fault):
                faults.append(written)
                continue
            if written is not None:
                self._tell(kind, written)
                live[kind.name, name] = kind.project(written)
                if kind in kinds.READ:
                    known.read[_path(kind, wanted)] = live[kind.name, name]
            turning |= rollover.is_held(written or seen, wanted)
        faults += await self._prune(known, observed, plan, revisions=not _pods_lack(faults))
        for fault in faults:
            if fault.doubtful is not None:
                raise fault.doubtful
        return Outcome(tuple(faults), live, turning)

    async def _tried(
        self, known: Known, kind: Kind, seen: Object | None, wanted: Object, owner_uid: str
    ) -> Object | Fault | None:
        """Make one child as wanted; return it if it was written, or why it is refused."""
        name, path = wanted["metadata"]["name"], _path(kind, wanted)
        try:
            written = await self._settle(known, kind, seen, wanted, owner_uid)
        except NameConflictError:
            known.read.pop(path, None)  # whose it is may be something else by the next pass
            message = f"{kind.name} {name} exists and does not belong to this GuidedModel"
            return Fault("NameConflict", message, kind.auxiliary)
        except ApiError as error:
            return self._fault(known, error, kind, path, auxiliary=kind.auxiliary)
        known.refused.pop(path, None)
        return written

    def _fault(self, known: Known, error: ApiError, kind: Kind, path: str, *, auxiliary: bool) -> Fault:
        fault = _refusal(error, kind, path.rpartition("/")[2], auxiliary=auxiliary)
        if error.is_lasting or (auxiliary and not isinstance(error, AccessForbidden)):
            return fault
        is_young = known.is_young(path, self._clock())
        return replace(fault, doubtful=error) if is_young else fault

    async def _is_known(self, seen: Object) -> bool:
        if not rollover.is_paused(seen):
            return False
        labelled = {"labelSelector": f"{names.LABEL_NAME}={seen['metadata']['name']}"}  # the model's, too
        path = kinds.api_path("apps/v1", kinds.REPLICA_SETS, seen["metadata"]["namespace"])
        return rollover.is_known(seen, (await self._api.read(path, params=labelled))["items"])

    async def _settle(
        self, known: Known, kind: Kind, seen: Object | None, wanted: Object, owner_uid: str
    ) -> Object | None:
        """Make one child as wanted; return it as stored if it was written."""
        path = _path(kind, wanted)
        if seen is None:  # it is not there, or not watched, or the cache lags, or it lacks our label
            seen = await self._look(kind, path)
            if kind in kinds.READ:
                known.read[path] = seen
        if seen is None:
            return await self._write(known, path, _marked(wanted))
        if not is_owned(seen, owner_uid):
            raise NameConflictError
        if "deletionTimestamp" in seen["metadata"] or known.is_settled(path, _marked(wanted), seen):
            return None
        if kind is kinds.DEPLOYMENT and rollover.is_turn(seen, wanted) and not await self._is_known(seen):
            wanted = rollover.paused(wanted)
            if known.is_settled(path, _marked(wanted), seen):
                return None
        return await self._write(known, path, _marked(wanted, seen["metadata"]["uid"]))

    async def _look(self, kind: Kind, path: str) -> Object | None:
        try:
            found: Object = kind.project(await self._api.read(path))
        except ObjectNotFound:
            return None
        return found

    async def _write(self, known: Known, path: str, marked: Object) -> Object:
        written = await self._api.patch(path, marked, kind="apply")
        missing = tuple(differences(marked, written))
        if missing:
            self.unsettled += 1
            known.unsettled[path] = mark_of(marked), missing
            logger.warning("%s differs after it was applied: %s", path, ", ".join(missing))
        return written

    async def _prune(self, known: Known, observed: Observed, plan: Plan, *, revisions: bool) -> list[Fault]:
        """Delete what is no longer wanted, without `revisions` only what pods are not made of."""
        faults = []
        for kind, name in plan.surplus if revisions else [each for each in plan.surplus if each[0].pruned]:
            path = kind.path(observed.key.namespace, name)
            try:
                child = known.child(observed, kind, name)
                if child is None and kind in kinds.READ and path not in known.read:
                    child = known.read[path] = await self._look(kind, path)
                if (
                    child is None
                    or not is_owned(child, observed.uid)
                    or "deletionTimestamp" in child["metadata"]
                ):
                    continue
                with contextlib.suppress(ObjectNotFound):
                    await self._api.delete(path, uid=child["metadata"]["uid"])
                known.read[path] = None
                if kind in kinds.OBSERVED:
                    self._tell(kind, child)
            except ApiError as error:  # the pods do not need what is no longer wanted
                faults.append(self._fault(known, error, kind, path, auxiliary=True))
            else:
                known.refused.pop(path, None)
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


def _marked(wanted: Object, uid: str = "") -> Object:
    """Return the manifest with its own hash as an annotation: it differs also where a field was removed.

    With a `uid`, the API server refuses to write any other object.
    """
    metadata = wanted["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_APPLIED: digest(wanted)}
    identity = {"uid": uid} if uid else {}
    return {**wanted, "metadata": {**metadata, **identity, "annotations": annotations}}

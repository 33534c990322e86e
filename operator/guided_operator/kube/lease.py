"""Leader election: a Lease of our own, judged by the monotonic clock only.

The holder renews it every few seconds; a standby takes it when it has not seen it change for its whole
duration, by the standby's own clock, so clocks need not agree. The holder stops acting (`is_held`) before
a standby may start, also when the API server is out of reach, and its process then ends.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from guided_operator.kube.api_errors import AlreadyExists, ApiError, ObjectNotFound, WriteConflict
from guided_operator.kube.apiserver import ApiServer, Object

logger = logging.getLogger(__name__)


# How the Lease is kept, as client-go keeps it by default. Twice `_REQUEST_S` is within `DEADLINE_S`: one late
# answer costs nothing.
DURATION_S: Final = 15.0  # unchanged for so long: a standby takes it
DEADLINE_S: Final = 10.0  # not renewed for so long: the holder stops acting and ends
_RENEW_S: Final = 2.0
_POLL_S: Final = 2.0  # how often a standby looks
_REQUEST_S: Final = 4.0


class LeaseLostError(Exception):
    """The replica lost leadership; the process must exit."""


class Lease:
    """One replica's hold on, or wait for, the Lease.

    Attributes
    ----------
    waits
        Whether another replica holds it, as this one has seen.

    Parameters
    ----------
    api
        The API server.
    namespace, name
        Where the Lease is.
    identity
        This replica's own name; no two processes, and no two lives of a process, share one.
    clock, sleep
        Monotonic seconds, and waiting by the same clock.
    """

    def __init__(  # noqa: PLR0913 - two of them are only the clock
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.waits = False
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._identity = identity
        self._clock = clock
        self._sleep = sleep
        self._version = ""
        self._renewed_at: float | None = None

    def is_held(self) -> bool:
        """Return whether this replica may act now."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < DEADLINE_S

    def bound_s(self, timeout_s: float) -> float:
        """Return how long a write may take: none outlasts the Lease, however slow it is.

        Raises
        ------
        NotLeadingError
            The Lease is not held: the process was stopped or starved for longer than it lasts.
        """
        if self._renewed_at is None or not self.is_held():
            raise NotLeadingError("this replica is not the leader")
        return min(timeout_s, self._renewed_at + DURATION_S - self._clock())

    async def acquire(self) -> None:
        """Wait until this replica holds the Lease."""
        seen_version, seen_at = "", self._clock()
        while not self.is_held():
            with contextlib.suppress(ApiError):
                lease = await self._read()
                self.waits = lease is not None and bool(_holder(lease))
                if lease is None:
                    await self._create()
                elif lease["metadata"]["resourceVersion"] != seen_version and _holder(lease):
                    seen_version, seen_at = lease["metadata"]["resourceVersion"], self._clock()
                elif not _holder(lease) or self._clock() - seen_at >= DURATION_S:
                    await self._take(lease)
            if not self.is_held():
                expires_s = seen_at + DURATION_S - self._clock()
                await self._sleep(min(_POLL_S, max(expires_s, 0.1)))
        self.waits = False
        logger.info("this replica is the leader: %s", self._identity)

    async def keep(self) -> None:
        """Renew the Lease for as long as it can be renewed.

        Raises
        ------
        LeaseLostError
            Another replica took it, or it could not be renewed before its deadline.
        """
        while True:
            # From when the last one was asked for: a slow answer must not delay the next renewal.
            asked_at = self._clock() if self._renewed_at is None else self._renewed_at
            await self._sleep(max(asked_at + _RENEW_S - self._clock(), 0.0))
            while not await self._renewed():
                if not self.is_held():
                    raise LeaseLostError(f"the Lease was not renewed for {DEADLINE_S:g} s")
                await self._sleep(0.5)

    async def release(self) -> None:
        """Let the Lease go, so that a standby takes over at its next look."""
        if not self.is_held():
            return
        self._renewed_at = None
        with contextlib.suppress(ApiError):
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})

    async def _renewed(self) -> bool:
        asked_at = self._clock()
        try:
            await self._write({"renewTime": _now()})
        except (WriteConflict, ObjectNotFound):
            await self._check_holder()
            return False
        except ApiError as error:
            logger.warning("renewing the Lease failed: %s", error)
            return False
        self._renewed_at = asked_at
        return True

    async def _check_holder(self) -> None:
        """Find out why our write was refused: taken, deleted, or only our last answer got lost."""
        try:
            lease = await self._read()
        except ApiError as error:
            logger.warning("reading the Lease failed: %s", error)
            return
        if lease is None or _holder(lease) != self._identity:
            self._renewed_at = None
            raise LeaseLostError("another replica took the Lease")
        self._version = lease["metadata"]["resourceVersion"]

    async def _read(self) -> Object | None:
        try:
            return await self._api.read(f"{self._collection}/{self._name}", timeout_s=_REQUEST_S)
        except ObjectNotFound:
            return None

    async def _create(self) -> None:
        asked_at = self._clock()
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": self._spec(transitions=0),
        }
        with contextlib.suppress(AlreadyExists):
            created = await self._api.create(self._collection, body, timeout_s=_REQUEST_S)
            self._version = created["metadata"]["resourceVersion"]
            self._renewed_at = asked_at

    async def _take(self, lease: Object) -> None:
        asked_at = self._clock()
        self._version = lease["metadata"]["resourceVersion"]
        transitions = int(lease.get("spec", {}).get("leaseTransitions", 0)) + 1
        with contextlib.suppress(WriteConflict):  # another standby was faster
            await self._write(self._spec(transitions=transitions))
            self._renewed_at = asked_at

    async def _write(self, spec: Object) -> None:
        # The resource version makes the patch fail where anybody wrote since our last look.
        body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        written = await self._api.patch(
            f"{self._collection}/{self._name}", body, kind="merge", timeout_s=_REQUEST_S
        )
        self._version = written["metadata"]["resourceVersion"]

    def _spec(self, *, transitions: int) -> Object:
        now = _now()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION_S),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


class NotLeadingError(ApiError):
    """A write was asked for while this replica does not hold the Lease."""


def _holder(lease: Object) -> str:
    holder: str = lease.get("spec", {}).get("holderIdentity") or ""
    return holder


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

"""The operator's own events, on its Lease: one for what it may not see, and not one for each GuidedModel."""

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from guided_operator.kube import events, kinds
from guided_operator.kube.api_errors import AlreadyExists, ApiError
from guided_operator.kube.apiserver import Api

logger = logging.getLogger(__name__)

_API_VERSION: Final = "coordination.k8s.io/v1"
LOOK_S: Final = 30.0


class OwnEvents:
    """Posts an event when something can no longer be seen.

    A standby that takes over, or a restart, posts none again within the hour for which events are kept.

    Parameters
    ----------
    api
        Writes only while this replica leads.
    namespace, lease
        Where the Lease is.
    unseen
        Returns the paths of the collections that cannot be seen, and why.
    now
        Wall-clock time, with a time zone.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        lease: str,
        unseen: Callable[[], Mapping[str, str]],
        now: Callable[[], dt.datetime],
    ) -> None:
        self._api = api
        self._lease_path = kinds.api_path(_API_VERSION, "leases", namespace, lease)
        self._unseen = unseen
        self._now = now
        self._told: set[str] = set()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await sleep(LOOK_S)

    async def look(self) -> None:
        """Post an event for each collection that cannot be seen; one that fails is tried at the next look."""
        unseen = self._unseen()
        self._told &= unseen.keys()
        for path in sorted(unseen.keys() - self._told):
            try:
                await self._tell(path, unseen[path])
            except AlreadyExists:
                pass
            except ApiError as error:
                logger.warning("no event that %s cannot be seen: %s", path, error)
                continue
            self._told.add(path)

    async def _tell(self, path: str, why: str) -> None:
        metadata = (await self._api.read(self._lease_path))["metadata"]
        lease = {field: metadata[field] for field in ("namespace", "name", "uid")}
        about = {"apiVersion": _API_VERSION, "kind": "Lease", **lease}
        message = f"{path} cannot be seen: {why}"
        await events.post(self._api, events.warning(about, "Forbidden", message, (path,), self._now()))

"""What is known of the watches: whether each kind has been seen, in each namespace, and why not."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError, ObjectNotFound
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.kinds import Kind
from guided_operator.watch.cache import Cache, Name, name_of

Object = dict[str, Any]
logger = logging.getLogger(__name__)

WATCHED: Final = (kinds.MODEL, *kinds.WATCHED)
# A refusal is believed if so many come over so long: an API server that has just started refuses everything
# until it knows who may what. Of what was seen before there is something to lose.
_REFUSALS: Final = 3
_REFUSED_S: Final = 60.0
_NEVER_SEEN_REFUSED_S: Final = 30.0
_LOOK_S: Final = 1.0
_DISCOVERY_S: Final = 10.0  # somebody has to install an API, and then waits for us
_HANDLED_S: Final = 60.0  # what was listed and never came is waited for so long


class Informer:
    """One kind's watch, in one namespace ("": all), as the answers to it tell.

    Attributes
    ----------
    broken
        How often the watch, or a list, was refused or broke off.
    """

    def __init__(self, kind: Kind, namespace: str, cache: Cache, clock: Callable[[], float]) -> None:
        self.kind = kind
        self.path = kind.path(namespace)
        self.namespace = namespace
        self.broken = 0
        self.absent = False
        self._cache = cache
        self._clock = clock
        self._names: set[Name] = set()  # of the list that is being read
        self._awaited: set[Name] = set()  # of the first list, what has not been handled
        self._listed_s: float | None = None
        self._refusals = 0
        self._refused_s = 0.0
        self._why = ""

    def answered(self, *, is_well: bool) -> None:
        """Note an answer that is no refusal; one that is not well, or too old, is tried again."""
        self.broken += not is_well
        if is_well:
            self._refusals = 0

    def refused(self, why: str) -> None:
        """Note that the account's rights were refused."""
        self.broken += 1
        self._refused_s = self._refused_s if self._refusals else self._clock()
        self._refusals += 1
        self._why = why

    def listed(self, page: Iterable[Object], version: int, *, is_first: bool, is_last: bool) -> None:
        """Take in the names of a list's page; with the last, forget what is in none."""
        names = set(map(name_of, page))
        self._names = names if is_first else self._names | names
        if self._listed_s is None:
            self._awaited |= names  # kopf hands them over while it asks for the next page
        if is_last:
            self._cache.retain(self.kind, self.namespace, self._names, version)
            self._listed_s = self._clock() if self._listed_s is None else self._listed_s

    def take(self, event: str | None, item: Object) -> None:
        """Take in an event, as kopf hands it over."""
        self._cache.take(self.kind, event, item)
        self._awaited.discard(name_of(item))

    @property
    def forbidden(self) -> str:
        """Why the kind cannot be seen, "" if it can or may be in a moment."""
        long_s = _NEVER_SEEN_REFUSED_S if self._listed_s is None else _REFUSED_S
        lasts = self._refusals >= _REFUSALS and self._clock() - self._refused_s >= long_s
        return self._why if lasts else ""

    @property
    def is_settled(self) -> bool:
        """Whether all that was there at first has been seen, or why not is known."""
        if self._listed_s is None:
            return self.absent or bool(self.forbidden and self.kind is not kinds.MODEL)
        return not self._awaited or self._clock() - self._listed_s > _HANDLED_S


class Informers:
    """All of them.

    Parameters
    ----------
    api
        Asked which optional APIs there are.
    cache
        What takes in the objects.
    namespaces
        Those that are served; empty: all.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: Cache,
        namespaces: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self.all = [
            Informer(kind, namespace, cache, clock) for namespace in namespaces or ("",) for kind in WATCHED
        ]
        self.by_path: Mapping[str, Informer] = {each.path: each for each in self.all}
        self._absent: set[str] | None = None
        # Without a right on CRDs kopf looks for kinds when it starts, and watches none that comes later.
        self._fixed = {kind.name for kind in WATCHED} if namespaces else set[str]()

    async def run(self, changed: Callable[[], None]) -> None:
        """Look for ever at what cannot be seen, and call `changed` when that is something else."""
        discovered_s, before = -_DISCOVERY_S, None
        while True:
            now_s = time.monotonic()
            if now_s - discovered_s >= _DISCOVERY_S:
                await self._discover()
                discovered_s = now_s
            now = {path: each.forbidden for path, each in self.by_path.items()}, self.absent()
            if before is not None and now != before:
                for path in (path for path, why in now[0].items() if why and not before[0][path]):
                    logger.error("%s cannot be listed: %s", path, now[0][path])
                changed()
            before = now
            await asyncio.sleep(_LOOK_S)

    async def synced(self) -> None:
        """Wait until every kind is settled: deciding earlier would take what was not seen yet for missing."""
        while not self.is_synced():  # noqa: ASYNC110 - time alone may settle one
            await asyncio.sleep(0.1)

    def is_synced(self) -> bool:
        """Return whether every kind is settled."""
        return all(each.is_settled for each in self.all)

    def blind(self, namespace: str) -> Mapping[str, str]:
        """Return the kinds that cannot be seen in a namespace, and why."""
        found = (each for each in self.all if each.namespace in ("", namespace))
        return {each.kind.name: each.forbidden for each in found if each.forbidden}

    def absent(self) -> frozenset[str]:
        """Return the kinds whose API is not installed."""
        return frozenset(self._absent or ())

    def forbidden(self) -> Mapping[str, int]:
        """Return in how many namespaces each kind cannot be seen."""
        return self._sums(lambda each: bool(each.forbidden))

    def failures(self) -> Mapping[str, int]:
        """Return how often watches of each kind broke off."""
        return self._sums(lambda each: each.broken)

    async def _discover(self) -> None:
        absent = set[str]()
        for kind in kinds.OPTIONAL:
            if self._absent is not None and kind.name in self._fixed:
                absent |= self._absent & {kind.name}
                continue
            try:
                served = await self._api.read(kind.group_path)
            except ObjectNotFound:
                absent.add(kind.name)
            except ApiError as error:
                logger.warning("discovery of %s failed: %s", kind.plural, error)
                return
            else:
                if kind.plural not in {each["name"] for each in served["resources"]}:
                    absent.add(kind.name)
        self._absent = absent
        for each in self.all:
            each.absent = each.kind.name in absent

    def _sums(self, figure: Callable[[Informer], int]) -> Mapping[str, int]:
        sums = dict.fromkeys((kind.name for kind in WATCHED), 0)
        for each in self.all:
            sums[each.kind.name] += figure(each)
        return sums

"""The loop: for each key that rings, observe -> plan -> apply -> report."""

import asyncio
import datetime as dt
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from guided_operator.apiserver import Api, ApiError
from guided_operator.apply import Applier
from guided_operator.builders import Site
from guided_operator.observe import Observer
from guided_operator.plan import plan
from guided_operator.queue import Key, WorkQueue
from guided_operator.report import report
from guided_operator.situation import Situation

logger = logging.getLogger(__name__)

# Everything is looked at again so often though no bell rang: the net below every missed event.
RESYNC_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Reconciler:
    """One pass over one GuidedModel.

    `now` is wall-clock time, for the status; nothing is decided by it.
    """

    api: Api
    observer: Observer
    applier: Applier
    site: Site
    now: Callable[[], dt.datetime]

    async def reconcile(self, key: Key) -> float | None:
        """Make the cluster and the status like the spec; return the seconds until the next look.

        None: there is nothing to look after. Level-triggered: what rang the bell does not matter.

        Raises
        ------
        ApiError
            The API server failed or refused: look again after a backoff.
        """
        observed = await self.observer.observe(key)
        if observed is None or "deletionTimestamp" in observed.model["metadata"]:
            return None  # the garbage collector takes the children, by their owner references
        wanted = plan(observed, self.site)
        outcome = await self.applier.apply(observed, wanted)
        await report(self.api, Situation(observed, wanted, outcome), self.now())
        if outcome.faults:
            raise ChildFaultError(outcome.faults[0].message)
        next_look_s = self.observer.next_look_s(observed)
        return RESYNC_S if next_look_s is None else min(next_look_s, RESYNC_S)


class ChildFaultError(Exception):
    """A child could not be made as planned; the status says so, and it is tried again after a backoff."""


async def work(queue: WorkQueue, reconciler: Reconciler) -> None:
    """Handle keys for ever; run several of these for several keys at once."""
    while True:
        key = await queue.take()
        try:
            again_s = await reconciler.reconcile(key)
        except ApiError as error:
            delay_s = queue.failed(key, at_least_s=error.retry_after_s or 0.0)
            logger.warning("%s: %s; again in %.1f s", key, error, delay_s)
        except ChildFaultError as error:
            logger.warning("%s: %s; again in %.1f s", key, error, queue.failed(key))
        except Exception:  # a fault of ours in one resource must not stop the others
            logger.exception("%s: this is a bug; again in %.1f s", key, queue.failed(key))
        else:
            queue.done(key)
            if again_s is not None:
                queue.add(key, delay_s=again_s * random.uniform(0.9, 1.0))  # noqa: S311 - spreads load


async def work_together(queue: WorkQueue, reconciler: Reconciler, workers: int) -> None:
    """Run so many workers."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work(queue, reconciler))

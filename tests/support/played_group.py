"""A group of a LeaderWorkerSet in played time: images are pulled, ranks meet and load, probes strike.

Kubelet, controller and vLLM are played, by the objects that the operator writes and how long vLLM waits.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.worker_set_rules import is_recreated

Object = dict[str, Any]
_BACKOFF_S: Final = 10.0
_REMOVAL_S: Final = 30.0


@dataclass(slots=True)
class PlayedPod:
    """One pod. `stage`: how often its ranks have come to where all ranks meet."""

    phase: str = "Pending"
    restarts: int = 0
    stage: int = 0
    ready: bool = False

    @property
    def status(self) -> Object:
        """Return what the controller looks at."""
        return {"status": {"phase": self.phase, "containerStatuses": [{"restartCount": self.restarts}]}}


class PlayedGroup:
    """Plays until all pods are ready.

    Parameters
    ----------
    workers
        The LeaderWorkerSet.
    limits_s
        How long vLLM waits for the ranks of other nodes: at first, and once it has loaded.
    pulls_s
        How long each node pulls the image; a pod that goes before gets none of it.
    load_s
        How long a node loads the model.
    tell
        Called at each change.
    """

    def __init__(
        self,
        workers: Object,
        limits_s: tuple[float, float],
        *,
        pulls_s: Sequence[float],
        load_s: float,
        tell: Callable[[Sequence[PlayedPod]], None] = lambda _: None,
    ) -> None:
        self._workers = workers
        [engine] = workers["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
        probe = engine["startupProbe"]
        self._startup_s = probe["periodSeconds"] * probe["failureThreshold"]
        self._limits_s = limits_s
        self._pulls_s = [*pulls_s]
        self._load_s = load_s
        self._tell = tell
        self._news = asyncio.Condition()
        self.pods: list[PlayedPod] = []
        self.recreated = 0

    @property
    def is_ready(self) -> bool:
        """Whether all pods are ready."""
        return bool(self.pods) and all(pod.ready for pod in self.pods)

    async def play(self, most_s: float) -> None:
        """Play until the group is ready, `most_s` seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while not self.is_ready:
                    await self._live()

    async def _live(self) -> None:
        """Play from the group's creation until it is ready, or made anew."""
        self.pods = [PlayedPod() for _ in self._pulls_s]
        self._tell(self.pods)
        tasks = [asyncio.create_task(self._run(node, pod)) for node, pod in enumerate(self.pods)]
        try:
            async with self._news:
                await self._news.wait_for(lambda: self.is_ready or self._is_recreated())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not self.is_ready:
            self.recreated += 1
            await asyncio.sleep(_REMOVAL_S)

    def _is_recreated(self) -> bool:
        return is_recreated(self._workers, [pod.status for pod in self.pods])

    async def _run(self, node: int, pod: PlayedPod) -> None:
        await asyncio.sleep(self._pulls_s[node])
        self._pulls_s[node] = 0.0
        await self._change(pod, phase="Running")
        while not pod.ready:
            try:
                async with asyncio.timeout(self._startup_s):
                    await self._start(pod)
            except TimeoutError:  # the probe's, or one of vLLM's own
                await self._change(pod, restarts=pod.restarts + 1, stage=0)
                await asyncio.sleep(_BACKOFF_S)

    async def _start(self, pod: PlayedPod) -> None:
        first_s, loaded_s = self._limits_s
        await self._meet(pod, 1, first_s)
        await asyncio.sleep(self._load_s)
        await self._meet(pod, 2, loaded_s)
        await self._change(pod, ready=True)

    async def _meet(self, pod: PlayedPod, stage: int, limit_s: float) -> None:
        await self._change(pod, stage=stage)
        async with asyncio.timeout(limit_s), self._news:
            await self._news.wait_for(lambda: all(each.stage >= stage for each in self.pods))

    async def _change(self, pod: PlayedPod, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(pod, name, value)
        self._tell(self.pods)
        async with self._news:
            self._news.notify_all()

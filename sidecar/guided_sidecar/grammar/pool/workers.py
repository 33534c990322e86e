"""Keeps grammar workers at hand: a live template, idle workers forked from it, and a count of losses."""

import asyncio
import dataclasses
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, Literal

from opentelemetry.trace import get_current_span

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.status import Failure
from guided_contract.tasks import Living
from guided_contract.wire import Backend
from guided_sidecar.grammar.pool.worker_process import Template, TemplateDiedError, Worker
from guided_sidecar.grammar.worker_messages import Ready
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry import conventions as c

_log = logging.getLogger(__name__)
IDLE_DEATH: Final = "an idle grammar worker died"

# Why a worker was lost before its time: it died in a compile, or while idle, or with its template; its
# compile ran out of memory or time, or nobody waited for it any more.
Loss = Literal["crashed", "idle", "template", "memory", "deadline", "cancelled"]


@dataclasses.dataclass(slots=True)
class WorkersState:
    """What is to be told of the workers; counts are since the service started.

    `tokenizer` and `versions` are the newest template's, as in Ready; {} before the first.
    """

    idle: int = 0
    busy: int = 0  # that compile
    queued: int = 0  # compiles that wait for a worker
    restarts: Counter[Loss] = dataclasses.field(default_factory=Counter)  # workers lost before their time
    forks: int = 0  # workers made
    tokenizer: Mapping[Backend, str] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    last_failure: Failure | None = None  # of a compile or a worker

    @property
    def ready(self) -> int:
        """Workers that could take a compile now, or are compiling."""
        return self.idle + self.busy


class Workers:
    """Grammar workers, forked from one template that is itself restarted when it dies.

    There are to be `number`, idle and busy ones together. The more die in a row that nobody ordered and no
    grammar explains, the longer is the wait before the next: if deaths in a compile counted, one client's
    schemas could have all others wait.
    """

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._deaths = 0  # since a worker has last done a job
        self._idle: deque[Worker] = deque()
        self._state = WorkersState()
        self._changed = asyncio.Condition()
        self._kick = asyncio.Event()
        self._template: Template | None = None
        self._keeper = Living("grammar-workers", self._keep)
        self._facts: Ready | None = None

    @property
    def state(self) -> WorkersState:
        """How they are at this moment."""
        return dataclasses.replace(self._state, idle=len(self._idle))

    @property
    def are_exhausted(self) -> bool:
        """Whether none is left, because too many died in a row; others are made in a while."""
        return self._deaths >= self._settings.most_deaths and not self.state.ready

    async def facts(self) -> Ready:
        """Wait for the first template, and return what the newest one read: a branch of the hub moves."""
        async with self._changed:
            while self._facts is None:
                await self._changed.wait()
            return self._facts

    def start(self) -> None:
        """Begin to make workers."""
        self._keeper.start()

    async def stop(self) -> None:
        """Kill everything and wait until it is gone."""
        await self._keeper.stop()
        if self._template is not None:
            await self._template.stop()

    async def take(self) -> Worker:
        """Return an idle worker, first come first served; give it back by `put_back` or `discard`.

        GuidedError: none is left, and too many died.
        """
        self._state.queued += 1
        try:
            async with self._changed:
                while not self._idle:
                    if self.are_exhausted:
                        raise GuidedError(ErrorCode.GRAMMAR_SERVICE_EXHAUSTED, retry_after_s=self._delay_s())
                    await self._changed.wait()
                self._state.busy += 1
                return self._idle.popleft()
        finally:
            self._state.queued -= 1

    async def put_back(self, worker: Worker) -> None:
        """Take a worker back after its job."""
        self._state.busy -= 1
        self._deaths = 0
        await self._add(worker)

    async def discard(self, worker: Worker, loss: Loss | None) -> None:
        """Kill a worker, and wait until it is gone; `loss` None: it has done its work."""
        self._state.busy -= 1
        await worker.kill()
        if loss is None:
            self._deaths = 0
        else:
            self._lost(loss)
        worker.close()
        self._kick.set()

    def note(self, code: ErrorCode, message: str) -> None:
        """Keep a failure as the last one."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._state.last_failure = Failure(code=code.value, message=message[:1000], time=now)

    @property
    def have_template(self) -> bool:
        """Whether there is a template; workers end with it."""
        return self._template is not None and not self._template.is_gone

    def _on_exit(self, worker: Worker) -> None:
        """Note that a worker has ended; if it was idle, nobody else will notice."""
        if worker in self._idle:
            self._idle.remove(worker)
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        """Count a worker that died with nothing to do."""
        worker.close()
        if self.have_template:
            self._lost("idle")
            self._deaths += 1
            self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, IDLE_DEATH)
        else:
            self._lost("template")  # whose death counts once
        self._kick.set()

    async def _keep(self) -> None:
        """Keep a template alive, and as many workers idle as are wanted."""
        while True:
            if self.are_exhausted:
                await self._wake()  # who waits for a worker is told that there will be none
            await asyncio.sleep(self._delay_s())
            try:
                await self._fill()
            except TemplateDiedError as error:
                _log.warning("the grammar template died: %s", error)
                self._template = None
                self._deaths += 1
                self.note(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, f"the grammar template died: {error}")
                continue
            self._kick.clear()
            if self._missing() <= 0:
                await self._kick.wait()

    def _delay_s(self) -> float:
        """Return how long to wait before the next start: 0 after no death, then twice as long after each."""
        doubled = self._settings.restart_delay_s * 2.0 ** min(self._deaths - 1, 32)
        return min(doubled, self._settings.most_restart_delay_s) if self._deaths else 0.0

    def _lost(self, loss: Loss) -> None:
        self._state.restarts[loss] += 1
        get_current_span().add_event(c.WORKER_LOST, {c.WORKER_LOSS: loss})  # of the compile, if it had one

    def _missing(self) -> int:
        return self._number - len(self._idle) - self._state.busy

    async def _fill(self) -> None:
        if self._template is None:
            template = self._template = Template(self._on_exit)
            self._facts = ready = await template.start(self._settings.template_timeout_s)
            self._state.tokenizer, self._state.versions = ready.tokenizer, ready.versions
            _log.info("grammar template ready: %d MiB", ready.resident_bytes >> 20)
            await self._wake()
        elif self._template.is_gone:
            await self._template.stop()
            raise TemplateDiedError("the process ended")
        while self._missing() > 0:
            worker = await self._template.fork(self._settings.fork_timeout_s)
            self._state.forks += 1
            await self._add(worker)
            if worker.gone.is_set():
                return

    async def _add(self, worker: Worker) -> None:
        if worker.gone.is_set():  # before it was one of the idle, where its end would have been seen
            self._bury(worker)
            return
        self._idle.append(worker)
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()  # one that is cancelled meanwhile would lose it for all

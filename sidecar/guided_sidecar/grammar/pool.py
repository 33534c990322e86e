"""The pool of grammar workers: so many at once and a spare, each compile with a deadline, deaths answered.

A compile that runs longer than `slow_after_s` goes on in a second lane (as wide as the first), so that one
endless schema does not keep short ones waiting until its deadline.
"""

import asyncio
import collections
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.status import Failure
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.budget import RestartBudget
from guided_sidecar.grammar.deaths import ran_out_of_memory
from guided_sidecar.grammar.jobs import Failed, Job, Outcome, Ready
from guided_sidecar.grammar.lanes import Lanes
from guided_sidecar.grammar.process import Template, TemplateDiedError, Worker, WorkerDiedError
from guided_sidecar.settings import Settings

_log = logging.getLogger(__name__)
_ATTEMPTS = 2  # a crash is tried once more, on another worker
_LOOK_AGAIN_S = 0.05
_SPOILING = (ErrorCode.GRAMMAR_COMPILE_MEMORY, ErrorCode.GRAMMAR_COMPILE_CRASHED)


@dataclasses.dataclass(slots=True)
class PoolState:
    """What the pool tells of itself."""

    ready: int = 0
    restarts: int = 0
    last_failure: Failure | None = None


class Pool:
    """Grammar workers, forked from one template that is itself restarted when it dies.

    Parameters
    ----------
    settings
        Limits and sizes.
    budget
        How many deaths are borne.
    """

    def __init__(self, settings: Settings, budget: RestartBudget) -> None:
        self._settings = settings
        self._budget = budget
        self._workers = settings.pod.guided_decoding.compile.workers
        self._state = PoolState()
        self._idle: collections.deque[Worker] = collections.deque()
        self._busy: set[Worker] = set()
        self._changed = asyncio.Condition()
        self._kick = asyncio.Event()
        self._lanes = Lanes(self._workers, settings.slow_after_s)
        self._template: Template | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._facts: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()

    @property
    def state(self) -> PoolState:
        """Counts at this moment."""
        return dataclasses.replace(self._state, ready=len(self._idle) + len(self._busy))

    @property
    def exhausted_for_s(self) -> float:
        """Seconds until workers are started again; 0 while there is budget left."""
        return self._budget.exhausted_for_s()

    async def facts(self) -> Ready:
        """Wait for the first template, and return what it read."""
        return await asyncio.shield(self._facts)

    def start(self) -> None:
        """Begin to make workers."""
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Kill everything and wait until it is gone."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._template is not None:
            await self._template.stop()
        self._facts.cancel()

    async def compile(self, job: Job, on_start: Callable[[], None]) -> Outcome:
        """Compile one grammar. Cancelling kills the worker, and ends when it is gone.

        Parameters
        ----------
        job
            Its `timeout_s` runs from the moment a worker has it.
        on_start
            Called at that moment; once more when a crash is tried again.

        Raises
        ------
        GuidedError
            grammar_compile_timeout, _crashed or _memory; grammar_service_exhausted.
        """
        async with self._lanes.turn():
            for attempt in range(1, _ATTEMPTS + 1):
                worker = await self._take()
                try:
                    return await self._run(worker, job, on_start)
                except WorkerDiedError as death:
                    self._judge(death, attempt)
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED)

    async def _run(self, worker: Worker, job: Job, on_start: Callable[[], None]) -> Outcome:
        outcome: Outcome | None = None
        on_start()
        try:
            async with asyncio.timeout(job.timeout_s):
                outcome = await worker.run(job)
        except TimeoutError as error:
            message = f"the grammar did not compile within {job.timeout_s:g} s"
            self.note(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, message)
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, message) from error
        finally:
            await asyncio.shield(self._put_back(worker, outcome))
        self._budget.record_success()
        if isinstance(outcome, Failed) and _is_spoilt(outcome):
            self.note(ErrorCode(outcome.code), outcome.message)
        return outcome

    def _judge(self, death: WorkerDiedError, attempt: int) -> None:
        """Raise if the death was the memory limit's or the last attempt's; else let it be tried again."""
        _log.warning("a grammar worker died in a compile (attempt %d): %s", attempt, death)
        if ran_out_of_memory(death.last_words):
            self.note(ErrorCode.GRAMMAR_COMPILE_MEMORY, str(death))
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from death
        self._budget.record_death()
        self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, str(death))
        if attempt == _ATTEMPTS:
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED) from death

    async def _take(self) -> Worker:
        """Return an idle worker, waiting for one to be made.

        Raises
        ------
        GuidedError
            The restart budget is spent and no worker is left.
        """
        async with self._changed:
            while not self._idle:
                if wait_s := self._budget.exhausted_for_s():
                    raise GuidedError(ErrorCode.GRAMMAR_SERVICE_EXHAUSTED, retry_after_s=wait_s)
                await self._changed.wait()
            worker = self._idle.popleft()
            self._busy.add(worker)
            self._kick.set()
            return worker

    async def _put_back(self, worker: Worker, outcome: Outcome | None) -> None:
        """Return a worker after its job, or get rid of one that is spoilt or said that it goes."""
        self._busy.discard(worker)
        if outcome is not None and not outcome.retire and not worker.ended.is_set():
            async with self._changed:
                self._idle.append(worker)
                self._changed.notify()
            return
        await worker.kill()
        if _is_spoilt(outcome):
            self._state.restarts += 1
        artifacts.discard_unfinished(self._settings.pod.grammars_folder, worker.pid)
        worker.close()
        self._kick.set()

    def _on_exit(self, worker: Worker) -> None:
        """Note that a worker was reaped; if it was idle, nobody else will notice."""
        if worker not in self._idle:
            return
        self._idle.remove(worker)
        worker.close()
        self._state.restarts += 1
        if not worker.died_with_template:  # counted once, as the template's death
            self._budget.record_death()
            self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, "an idle grammar worker died")
        self._kick.set()

    async def _keep(self) -> None:
        """Keep a template alive, and as many workers idle as compiles may still begin, and one."""
        while True:
            await self._pause()
            try:
                await self._fill()
            except TemplateDiedError as error:
                self._template_died(str(error))
                continue
            self._kick.clear()
            if self._missing() <= 0:
                await self._kick.wait()

    async def _pause(self) -> None:
        """Wait as long as the restart budget asks for, looking again meanwhile: a success shortens it."""
        begin = time.monotonic()
        while True:
            wait_s = self._budget.exhausted_for_s()
            if wait_s:
                await self._wake()  # who waits for a worker is told that there will be none
            else:
                wait_s = begin + self._budget.delay_s() - time.monotonic()
            if wait_s <= 0:
                return
            await asyncio.sleep(min(wait_s, _LOOK_AGAIN_S))

    def _template_died(self, why: str) -> None:
        _log.warning("the grammar template died: %s", why)
        self._template = None
        self._budget.record_death()
        self.note(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, f"the grammar template died: {why}")

    def _missing(self) -> int:
        return max(1, self._workers - self._lanes.fast + 1) - len(self._idle)

    async def _fill(self) -> None:
        if self._template is not None and self._template.died.is_set():
            raise TemplateDiedError("the process ended")
        if self._template is None:
            self._template = Template(self._on_exit)
            ready = await self._template.start(self._settings.template_timeout_s)
            _log.info("grammar template ready: %d MiB", ready.resident_bytes >> 20)
            if not self._facts.done():
                self._facts.set_result(ready)
            self._watch(self._template)
        while self._missing() > 0:
            worker = await self._template.fork(self._settings.fork_timeout_s)
            self._idle.append(worker)
            await self._wake()

    def _watch(self, template: Template) -> None:
        async def kick_when_dead() -> None:
            await template.died.wait()
            self._kick.set()

        self._watcher = asyncio.create_task(kick_when_dead())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def note(self, code: ErrorCode, message: str) -> None:
        """Keep a failure as the last one."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._state.last_failure = Failure(code=code.value, message=message[:1000], time=now)


def _is_spoilt(outcome: Outcome | None) -> bool:
    """Return whether a worker goes because of its last job, not because it has done enough of them."""
    if outcome is None:
        return True
    return isinstance(outcome, Failed) and outcome.code in _SPOILING

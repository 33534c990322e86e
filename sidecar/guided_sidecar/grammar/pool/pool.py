"""The pool of grammar workers: so many compiles at once, first come first served, each with a deadline."""

import asyncio
import dataclasses
import logging

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.compile_progress import CompileProgress
from guided_sidecar.grammar.pool.restart_budget import RestartBudget
from guided_sidecar.grammar.pool.worker_process import Worker
from guided_sidecar.grammar.pool.workers import IDLE_DEATH, Loss, Workers, WorkersState
from guided_sidecar.grammar.worker_errors import WorkerDiedError, ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Failed, Job, Meanwhile, Outcome, Ready
from guided_sidecar.settings import Settings
from guided_sidecar.telemetry.incidents import WorkerRestarts

_log = logging.getLogger(__name__)
_ATTEMPTS = 2  # a crash is tried once more, on another worker
# Of the time for a compile, for a library that is asked because another refused: it is the slower one.
_FALLBACK_SHARE = 0.25


class Pool:
    """Compiles grammars in workers.

    Parameters
    ----------
    settings
        Limits and sizes.
    budget
        How many deaths are borne.
    width
        Compiles at once, and workers.
    restarts
        Tell of workers that were lost.
    """

    def __init__(
        self, settings: Settings, budget: RestartBudget, width: int, restarts: WorkerRestarts
    ) -> None:
        self._budget = budget
        self._under_way = 0
        self._slots = asyncio.Semaphore(width)
        self._workers = Workers(settings, budget, restarts, width)

    @property
    def state(self) -> WorkersState:
        """How the workers are at this moment."""
        state = self._workers.state
        return dataclasses.replace(state, queued=max(0, self._under_way - state.busy))

    @property
    def exhausted_for_s(self) -> float:
        """Seconds until workers are started again; 0 while there is budget left."""
        return self._budget.exhausted_for_s()

    async def facts(self) -> Ready:
        """Wait for the first template, and return what it read."""
        return await self._workers.facts()

    def start(self) -> None:
        """Begin to make workers."""
        self._workers.start()

    async def stop(self) -> None:
        """Kill everything and wait until it is gone."""
        await self._workers.stop()

    def note(self, code: ErrorCode, message: str) -> None:
        """Keep a failure as the last one."""
        self._workers.note(code, message)

    def too_late(self, limit_s: float, progress: CompileProgress) -> GuidedError:
        """Return what is said of a compile that was not done in a time limit; note what is its own fault."""
        error = progress.too_late(limit_s)
        if error.code is not ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE:
            self.note(error.code, error.message)
        return error

    async def compile(self, job: Job, progress: CompileProgress) -> Outcome:
        """Compile one grammar. Cancelling kills the worker, and ends when it is gone.

        Parameters
        ----------
        job
            Its `timeout_s` runs from the moment a worker has it.
        progress
            Kept up to date meanwhile.

        Raises
        ------
        GuidedError
            grammar_compile_timeout, _crashed or _memory; grammar_service_exhausted or _unavailable.
        """
        self._under_way += 1
        try:
            async with self._slots:
                return await self._compile(job, progress)
        finally:
            self._under_way -= 1

    async def _compile(self, job: Job, progress: CompileProgress) -> Outcome:
        while True:
            worker = await self._workers.take()
            try:
                return await self._run(worker, job, progress)
            except WorkerDiedError as death:
                progress.deaths += death.had_begun
                progress.queue()
                self._judge(death, progress.deaths)

    async def _run(self, worker: Worker, job: Job, progress: CompileProgress) -> Outcome:
        outcome: Outcome | None = None
        loss: Loss = "crashed"
        limit_s = job.timeout_s
        limit = asyncio.timeout(limit_s)
        now = asyncio.get_running_loop().time

        def told(said: Meanwhile) -> None:
            nonlocal limit_s
            if isinstance(said, Compiled):
                progress.tell(said)
                return
            limit_s = job.timeout_s * _FALLBACK_SHARE
            progress.refusal = GuidedError(said.code, said.message, path=said.path)
            end = now() + limit_s
            limit.reschedule(min(end, limit.when() or end))

        progress.start()
        try:
            async with limit:
                outcome = await worker.run(job, told)
        except TimeoutError as error:
            loss = "deadline"
            raise self.too_late(limit_s, progress) from error
        except asyncio.CancelledError:
            loss = "cancelled" if progress.ended is None else "deadline"
            raise
        except WorkerDiedError as death:
            loss = _loss(worker, death)
            raise
        finally:
            await asyncio.shield(self._after(worker, outcome, loss))
        self._budget.record_success()
        if isinstance(outcome, Failed) and _spoilt(outcome):
            self.note(ErrorCode(outcome.code), outcome.message)
        return outcome

    async def _after(self, worker: Worker, outcome: Outcome | None, loss: Loss) -> None:
        """Return a worker after its job, or get rid of one that is lost, spoilt or said that it goes."""
        if outcome is None:
            await self._workers.discard(worker, loss)
        elif outcome.retire:
            await self._workers.discard(worker, _spoilt(outcome))
        else:
            await self._workers.put_back(worker)

    def _judge(self, death: WorkerDiedError, attempt: int) -> None:
        """Raise if the death was the memory limit's or the last attempt's; else let it be tried again.

        A death in a compile is its grammar's, and does not count against the budget of all.
        """
        if not death.had_begun:
            self._budget.record_death()
            self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, IDLE_DEATH)
            return
        _log.warning("a grammar worker died in a compile (attempt %d): %s", attempt, death)
        code = ErrorCode.GRAMMAR_COMPILE_CRASHED
        if ran_out_of_memory(death.last_words):
            code = ErrorCode.GRAMMAR_COMPILE_MEMORY
        self.note(code, str(death))
        if code is ErrorCode.GRAMMAR_COMPILE_MEMORY or attempt == _ATTEMPTS:
            raise GuidedError(code) from death


def _loss(worker: Worker, death: WorkerDiedError) -> Loss:
    if ran_out_of_memory(death.last_words):
        return "memory"
    if worker.died_with_template:
        return "template"
    return "crashed" if death.had_begun else "idle"


def _spoilt(outcome: Outcome) -> Loss | None:
    """Return why a worker goes because of its last job; None: it goes because it has done enough of them."""
    if isinstance(outcome, Failed) and outcome.code == ErrorCode.GRAMMAR_COMPILE_MEMORY:
        return "memory"
    if isinstance(outcome, Failed) and outcome.code == ErrorCode.GRAMMAR_COMPILE_CRASHED:
        return "crashed"
    return None

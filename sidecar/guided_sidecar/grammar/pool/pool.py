"""The pool of grammar workers: a number of compiles at once, each with a deadline.

A compile that runs longer than `slow_after_s` goes on in a second lane (as wide as the first), so that no
number of endless schemas keeps short ones waiting until a deadline; where that lane is full, it makes room
and begins again later (fair_queue.py).
"""

import asyncio
import dataclasses
import logging

import msgspec

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.pool.compile_progress import CompileProgress
from guided_sidecar.grammar.pool.fair_queue import FairQueue, Slot
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
_CANARY = '{"type": "boolean"}'
_CANARY_KEY = "canary-"


class _DisplacedError(Exception):
    """A compile made room for another, and is to begin anew."""


class Pool:
    """Compiles grammars in workers.

    Parameters
    ----------
    settings
        Limits and sizes.
    budget
        How many deaths are borne.
    width
        Compiles at once, in each of two lanes.
    restarts
        Tell of workers that were lost.
    """

    def __init__(
        self, settings: Settings, budget: RestartBudget, width: int, restarts: WorkerRestarts
    ) -> None:
        self._budget = budget
        self._folder = settings.pod.grammars_folder
        self._under_way = 0
        self._queue = FairQueue(width, settings.slow_after_s)
        # As many as compiles may still begin, and a spare.
        wanted = lambda: self._queue.fast.free + 1  # noqa: E731 - asked again and again
        self._workers = Workers(settings, budget, restarts, wanted, most=width + 1)

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
            return await self._compile(job, progress)
        finally:
            self._under_way -= 1
            self._workers.look()  # its slot has counted as one under way until now

    async def _compile(self, job: Job, progress: CompileProgress) -> Outcome:
        async with self._queue.slot() as slot:
            while True:
                progress.queue()
                if slot.is_lost:
                    await slot.again()
                worker = await self._workers.take()
                try:
                    return await self._run(worker, job, slot, progress)
                except _DisplacedError:
                    continue
                except WorkerDiedError as death:
                    progress.deaths += death.had_begun
                    progress.queue()
                    await self._judge(death, job, progress.deaths)

    async def _run(self, worker: Worker, job: Job, slot: Slot, progress: CompileProgress) -> Outcome:
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

        progress.start(worker.cpu_s)
        try:
            async with limit:
                with slot.watched(lambda: limit.reschedule(now()), lambda: progress.cpu_s):
                    outcome = await worker.run(job, told)
        except TimeoutError as error:
            if slot.is_lost:
                loss = "displaced"
                raise _DisplacedError from error
            loss = "deadline"
            raise self.too_late(limit_s, progress) from error
        except asyncio.CancelledError:
            loss = "cancelled" if progress.late_after_s is None else "deadline"
            raise
        except WorkerDiedError as death:
            loss = _loss(worker, death)
            raise
        finally:
            progress.stop()
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

    async def _judge(self, death: WorkerDiedError, job: Job, attempt: int) -> None:
        """Raise if the death was the memory limit's or the last attempt's; else let it be tried again.

        A death in a compile counts against the budget of all only where another grammar fares no better.
        """
        if not death.had_begun:
            self._budget.record_death()
            self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, IDLE_DEATH)
            return
        _log.warning("a grammar worker died in a compile (attempt %d): %s", attempt, death)
        if ran_out_of_memory(death.last_words):
            self.note(ErrorCode.GRAMMAR_COMPILE_MEMORY, str(death))
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from death
        self.note(ErrorCode.GRAMMAR_COMPILE_CRASHED, str(death))
        if not await self._compiles_canary(job):
            self._budget.record_death()
        if attempt == _ATTEMPTS:
            raise GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED) from death

    async def _compiles_canary(self, job: Job) -> bool:
        """Return whether a worker compiles what every library takes, by the backends of a job."""
        canary = msgspec.structs.replace(
            job, key=f"{_CANARY_KEY}{job.key}", kind="json", spec=_CANARY, is_proven=False
        )
        worker = await self._workers.take()
        outcome: Outcome | None = None
        loss: Loss = "crashed"
        try:
            async with asyncio.timeout(job.timeout_s):
                outcome = await worker.run(canary)
        except (WorkerDiedError, TimeoutError):
            return False
        except asyncio.CancelledError:
            loss = "cancelled"
            raise
        else:
            return True
        finally:
            await asyncio.shield(self._after(worker, outcome, loss))
            artifacts.remove(self._folder, canary.key)


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

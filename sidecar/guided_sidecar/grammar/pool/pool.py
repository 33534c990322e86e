"""The pool of grammar workers: first come first served, a deadline for each compile, a crash tried again."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.pool.worker_process import Worker
from guided_sidecar.grammar.pool.workers import Loss, Workers
from guided_sidecar.grammar.worker_errors import WorkerDiedError, ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Failed, Job, Outcome, Ready

_log = logging.getLogger(__name__)
_ATTEMPTS: Final = 2  # a crash is tried once more, on another worker
# A compile that ran out of time is to blame for it only if a worker had it for so much of the limit.
_SHARE_WITH_A_WORKER: Final = 0.5
# Refusals after which a worker is not used again.
_SPOILT: Final[dict[ErrorCode, Loss]] = {
    ErrorCode.GRAMMAR_COMPILE_MEMORY: "memory",
    ErrorCode.GRAMMAR_COMPILE_CRASHED: "crashed",
}


@dataclasses.dataclass(slots=True)
class Progress:
    """How far one compile is, over all of its attempts, and what is said of it if it is late.

    `tell` is called with what ranks may load before it is proven; again where another worker begins anew, or
    another backend takes the grammar. `clock` tells monotonic seconds.
    """

    tell: Callable[[Compiled], None] = lambda _message: None
    clock: Callable[[], float] = time.monotonic
    deaths: int = 0  # workers that died of it
    ended: GuidedError | None = None  # said to the last who waited, whose time was over
    _started: float | None = None

    def start(self) -> None:
        """Note that a worker has it from now on."""
        self._started = self.clock()

    def died(self, *, with_template: bool) -> None:
        """Note that its worker has died, which says nothing of the grammar if its template has, too."""
        self.deaths += not with_template
        self._started = None

    def too_late(self, limit_s: float) -> GuidedError:
        """Return what is said of it where it was not done in a time limit."""
        if self.ended is not None:  # its worker may take a while to be gone
            return self.ended
        if self._started is None or self.clock() - self._started < _SHARE_WITH_A_WORKER * limit_s:
            crashed = "a grammar worker crashed; its replacement could not finish within"
            why = f"{crashed if self.deaths else 'all grammar workers were busy for'} {limit_s:g} s"
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, why, retry_after_s=1)
        message = f"the grammar did not compile within {limit_s:g} s"
        return GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, message)


class Pool:
    """Compiles grammars in workers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def facts(self) -> Ready:
        """Wait for the first template, and return what it read."""
        return await self._workers.facts()

    def too_late(self, limit_s: float, progress: Progress) -> GuidedError:
        """Return what is said of a compile that was not done in a time limit; note what is its own fault."""
        error = progress.too_late(limit_s)
        if error.code is ErrorCode.GRAMMAR_COMPILE_TIMEOUT:
            self._workers.note(error.code, error.message)
        return error

    async def compile(self, job: Job, progress: Progress) -> Outcome:
        """Compile one grammar. Cancelling kills the worker, and ends when it is gone.

        The job's `timeout_s` runs from the moment a worker has it. GuidedError: grammar_compile_timeout,
        _crashed or _memory; grammar_service_exhausted or _unavailable.
        """
        while True:
            worker = await self._workers.take()
            try:
                return await self._run(worker, job, progress)
            except WorkerDiedError as death:
                progress.died(with_template=not self._workers.have_template)
                if self._workers.have_template:
                    self._judge(death, progress.deaths)

    async def _run(self, worker: Worker, job: Job, progress: Progress) -> Outcome:
        progress.start()
        try:
            async with asyncio.timeout(job.timeout_s):
                outcome = await worker.run(job, progress.tell)
        except BaseException as error:
            late = self.too_late(job.timeout_s, progress) if isinstance(error, TimeoutError) else None
            await asyncio.shield(self._workers.discard(worker, self._loss(error, progress)))
            if late is not None:
                raise late from error
            raise
        if not outcome.retire:
            await asyncio.shield(self._workers.put_back(worker))
            return outcome
        loss = None  # it has done enough
        if isinstance(outcome, Failed) and (loss := _SPOILT.get(outcome.code)) is not None:
            self._workers.note(outcome.code, outcome.message)
        await asyncio.shield(self._workers.discard(worker, loss))
        return outcome

    def _judge(self, death: WorkerDiedError, attempt: int) -> None:
        """Raise if the death was the memory limit's or the last attempt's; else let it be tried again."""
        _log.warning("attempt %d: %s", attempt, death)
        is_memory = ran_out_of_memory(death.last_words)
        code = ErrorCode.GRAMMAR_COMPILE_MEMORY if is_memory else ErrorCode.GRAMMAR_COMPILE_CRASHED
        self._workers.note(code, str(death))
        if is_memory or attempt == _ATTEMPTS:
            raise GuidedError(code) from death

    def _loss(self, error: BaseException, progress: Progress) -> Loss:
        if not isinstance(error, WorkerDiedError):
            is_late = isinstance(error, TimeoutError) or progress.ended is not None
            return "deadline" if is_late else "cancelled"
        if ran_out_of_memory(error.last_words):
            return "memory"
        return "crashed" if self._workers.have_template else "template"

"""A grammar worker: a forked process that compiles job after job, under limits, until told to stop."""

import contextlib
import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec

from guided_contract import processes
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar import stack
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Job, Outcome

# Of an artefact, and of its own last words: files in memory, which no limit of address space counts.
_MOST_FILE_BYTES: Final = 80 << 20
_PAGE: Final = resource.getpagesize()
_NICENESS: Final = 10  # the service answers everybody: where both want a CPU, it comes first
_MOST_GROWTH: Final = 0.5  # of a job's memory, that earlier jobs may have kept
_MOST_LIKELY_VICTIM: Final = "1000"  # where the container has no memory, a worker is to go, not the service


class Limits:
    """What a worker may use, from its birth on; make it in the worker.

    Parameters
    ----------
    most_jobs
        Jobs until it goes.
    threads
        Of one compile.
    """

    def __init__(self, most_jobs: int, threads: int) -> None:
        self._jobs_left = most_jobs
        self._threads = threads
        self._born_bytes = _statm(0)

    def set_for(self, job: Job) -> None:
        """Have the kernel keep a job's limits: its memory, and as much CPU as its threads have time for.

        The service kills at the deadline; the CPU's limit is for a service that is stopped itself.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (self._born_bytes + job.memory_bytes, hard))
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime + job.timeout_s * (self._threads + 1)) + 1
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))

    def are_near(self, job: Job) -> bool:
        """Count a job; return whether the worker is to go: the next one would find too little left."""
        self._jobs_left -= 1
        grown_bytes = _statm(0) - self._born_bytes
        return self._jobs_left <= 0 or grown_bytes > job.memory_bytes * _MOST_GROWTH


def run(stream: socket.socket, stderr: int, compiler: Compiler, limits: Limits) -> NoReturn:
    """Serve jobs from a stream until it closes; never returns."""
    processes.die_with_parent()
    os.dup2(stderr, sys.stderr.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    # Libraries call themselves for each reference: what a rank could not load is to end here.
    resource.setrlimit(resource.RLIMIT_STACK, (stack.WORKER_BYTES, stack.WORKER_BYTES))
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # not permitted in some sandboxes; the limits hold all the same
        Path("/proc/self/oom_score_adj").write_text(_MOST_LIKELY_VICTIM)
    jobs = stream.makefile("rb")
    while (job := _next_job(jobs)) is not None:
        limits.set_for(job)
        tell = lambda message: stream.sendall(worker_messages.answer(message))  # noqa: E731 - of this job
        outcome = msgspec.structs.replace(_outcome(compiler, job, tell), proofs=compiler.proofs)
        outcome = msgspec.structs.replace(
            outcome, retire=limits.are_near(job) or outcome.retire or compiler.is_worn
        )
        stream.sendall(worker_messages.answer(outcome))
        if outcome.retire:
            break
    os._exit(0)


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return _statm(1)


def _statm(field: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[field]) * _PAGE


def _next_job(stream: BinaryIO) -> Job | None:
    header = stream.read(worker_messages.LENGTH.size)
    if len(header) < worker_messages.LENGTH.size:
        return None
    body = stream.read(worker_messages.body_length(header))
    return worker_messages.decode_job(body)


def _outcome(compiler: Compiler, job: Job, tell: Callable[[Compiled], None]) -> Outcome:
    try:
        return compiler.run(job, tell)
    except GuidedError as error:
        # What a library did to its own state when memory ran out nobody knows: such a worker goes.
        retire = error.code is ErrorCode.GRAMMAR_COMPILE_MEMORY
        return worker_messages.refusal(error, retire=retire)
    except MemoryError:
        return _out_of_memory()
    except RecursionError:
        message = "the grammar is nested too deeply to be checked"
        return worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message))
    except Exception as error:  # noqa: BLE001 - a fault of ours must cost no second worker, and no restart budget
        if ran_out_of_memory(str(error)):
            return _out_of_memory()
        message = f"the check of the compiled grammar failed: {type(error).__name__}: {error}"
        return worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED, message), retire=True)


def _out_of_memory() -> Outcome:
    return worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY), retire=True)

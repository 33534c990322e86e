"""A grammar worker: a forked process that compiles job after job, under limits, until told to stop."""

import contextlib
import itertools
import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec

from guided_contract import processes, wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar import stack
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Job, Outcome

# Of its own last words: a file in memory, which no limit of address space counts.
_MOST_FILE_BYTES: Final = 16 << 20
_PAGE: Final = resource.getpagesize()
_NICENESS: Final = 10  # the service answers everybody: where both want a CPU, it comes first
_MOST_LIKELY_VICTIM: Final = "1000"  # where the container has no memory, a worker is to go, not the service


def run(stream: socket.socket, stderr: int, compiler: Compiler, most_jobs: int) -> NoReturn:
    """Serve jobs from a stream until it closes, or so many; never returns."""
    processes.die_with_parent()
    os.dup2(stderr, sys.stderr.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    # Libraries call themselves for each reference: what a rank could not load is to end here.
    resource.setrlimit(resource.RLIMIT_STACK, (stack.WORKER_BYTES, stack.WORKER_BYTES))
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # not permitted in some sandboxes; the limits hold all the same
        Path("/proc/self/oom_score_adj").write_text(_MOST_LIKELY_VICTIM)
    jobs, born_bytes = stream.makefile("rb"), _statm(0)
    for number in itertools.count(1):
        if (job := _next_job(jobs)) is None:
            break
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (born_bytes + job.memory_bytes, hard))
        tell = lambda message: stream.sendall(worker_messages.answer(message))  # noqa: E731 - of this job
        outcome = msgspec.structs.replace(_outcome(compiler, job, tell), proofs=tuple(compiler.proofs))
        retire = outcome.retire or number >= most_jobs or compiler.is_worn
        outcome = msgspec.structs.replace(outcome, retire=retire)
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
    header = stream.read(wire.LENGTH.size)
    if len(header) < wire.LENGTH.size:
        return None
    return worker_messages.decode_job(stream.read(wire.body_length(header)))


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
    except Exception as error:  # noqa: BLE001 - a fault of ours must cost no second worker
        if ran_out_of_memory(str(error)):
            return _out_of_memory()
        message = f"the check of the compiled grammar failed: {type(error).__name__}: {error}"
        return worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_COMPILE_CRASHED, message), retire=True)


def _out_of_memory() -> Outcome:
    return worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY), retire=True)

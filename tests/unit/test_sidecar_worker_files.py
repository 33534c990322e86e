"""What a worker may say that is no grammar: endless words, faults, broken answers; each costs one job."""

import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

import msgspec
import pytest

from guided_contract import wire
from guided_contract.counting import Position
from guided_contract.errors import MALFORMED, ErrorCode
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.compile import worker
from guided_sidecar.grammar.worker_messages import Done, Failed, Job

WORKER = """
import os, socket, sys
from guided_sidecar.grammar.compile import worker

class Talks:
    proofs = []
    def run(self, job, tell):
        while True:
            os.write(2, bytes(1 << 20))

stream, stderr = int(sys.argv[1]), int(sys.argv[2])
worker.run(socket.socket(fileno=stream), stderr, Talks(), 10)
"""


def test_endless_words_end_the_job_and_fill_no_memory() -> None:
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("stderr")
    job = Job(key="k", kind="json", spec="{}", backends=["guidance"], timeout_s=20, memory_bytes=1 << 30)
    descriptors = (theirs.fileno(), stderr)
    command = [sys.executable, "-c", WORKER, *map(str, descriptors)]
    with ours, subprocess.Popen(command, pass_fds=descriptors) as child:
        theirs.close()
        ours.settimeout(60)
        ours.sendall(wire.frame(job))
        with ours.makefile("rb") as stream:
            size = wire.body_length(stream.read(wire.LENGTH.size))
            outcome = worker_messages.decode_from_worker(stream.read(size))
        assert child.wait(20) == 0
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retire) == (ErrorCode.GRAMMAR_COMPILE_CRASHED, True)
    assert 1 << 20 < os.fstat(stderr).st_size <= 80 << 20
    os.close(stderr)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (AttributeError("'str' object has no attribute 'keys'"), ErrorCode.GRAMMAR_COMPILE_CRASHED),
        (RuntimeError("std::bad_alloc"), ErrorCode.GRAMMAR_COMPILE_MEMORY),
    ],
)
def test_a_fault_outside_the_compilers_costs_one_request(fault: Exception, code: ErrorCode) -> None:
    class Faulty:
        def run(self, _job: Job, _tell: Any) -> NoReturn:
            raise fault

    job = Job(key="k", kind="json", spec="{}", backends=[], timeout_s=1, memory_bytes=1)
    faulty: Any = Faulty()
    outcome = worker._outcome(faulty, job, lambda _done: None)
    assert isinstance(outcome, Failed)
    assert outcome.code == code
    assert outcome.retire, "what else it left behind nobody knows"


KEY = "ab" * 32
GUIDANCE: dict[str, Any] = {"type": "Done", "backend": "guidance", "spec": "{}"}
REFUSED: dict[str, Any] = {"type": "Failed", "code": "grammar_invalid", "message": "no"}


@pytest.mark.parametrize("answer", [{}, GUIDANCE | {"size_bytes": -1}, REFUSED | {"code": "no such code"}])
def test_an_answer_that_is_not_whole_is_the_workers_death(answer: dict[str, Any]) -> None:
    with pytest.raises(MALFORMED):
        worker_messages.decode_from_worker(msgspec.msgpack.encode(answer))


def test_what_is_too_long_for_the_ranks_is_a_refusal() -> None:
    """It failed in the service, for every request anew, and for every rank that came back."""
    positions = [Position(maximum=3, others=0)]
    most = Done(
        backend="guidance", spec="x" * (worker_messages.MAX_OUTCOME_BYTES - 1000), positions=positions
    )
    fits = worker_messages.answer(most)[wire.LENGTH.size :]
    assert worker_messages.decode_from_worker(fits) == most
    load = wire.Load(key=KEY, backend="guidance", spec=most.spec, positions=positions)
    assert wire.frame(load)

    longer = msgspec.structs.replace(most, spec="x" * worker_messages.MAX_OUTCOME_BYTES, retire=True)
    refused = worker_messages.decode_from_worker(worker_messages.answer(longer)[wire.LENGTH.size :])
    assert isinstance(refused, Failed)
    assert (refused.code, refused.retire) == (ErrorCode.GRAMMAR_TOO_LARGE, True)

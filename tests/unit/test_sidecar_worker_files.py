"""What a worker may write: its last words are a file in memory, which no limit on address space counts."""

import os
import socket
import subprocess
import sys

from guided_contract import wire
from guided_contract.errors import ErrorCode
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.worker_messages import Failed, Job

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

"""The template process: imports the libraries and reads the tokenizer once, then forks workers in no time.

Runs `python -m guided_sidecar.grammar.compile.fork_server FD`, FD being its end of a SOCK_SEQPACKET pair. It
has one thread, so that forking it is safe, and is the parent of all workers, which end with it.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from importlib import metadata

from guided_contract import backends, processes
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar import settings
from guided_sidecar.grammar import trust, worker_messages
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.compile import imports, vocabulary, worker
from guided_sidecar.grammar.compile.compiler import Compiler


def main() -> None:
    """Become ready, say so, and fork on request."""
    processes.die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    configuration = settings.load()
    pod = configuration.pod
    if not pod.trust_remote_code:  # a tokenizer's own code may need torch
        imports.without_torch()
    words = vocabulary.load(pod)
    threads = Capacity.of_this_container(pod.guided_decoding.compile).threads
    compiler = Compiler(Backends(words, Threads(compile=threads)), words)
    compiler.warm()
    # Objects that exist now are not looked at by a worker's collector: their pages stay shared.
    gc.collect()
    gc.freeze()
    versions = dict.fromkeys(backends.DISTRIBUTIONS, trust.UNKNOWN)
    for name in versions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name) or trust.UNKNOWN  # None where its metadata names none
    ready = worker_messages.Ready(
        tokenizer=words.fingerprints,
        vocab_size=words.vocab_size,
        versions=versions,
        resident_bytes=worker.resident_bytes(),
    )
    control.send(worker_messages.packet(ready))
    while control.recv(worker_messages.MAX_PACKET_BYTES):  # until the service closes its end
        _fork(control, compiler, configuration.jobs_per_worker)


def _fork(control: socket.socket, compiler: Compiler, most_jobs: int) -> None:
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that dies now has to have a pidfd first
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            ours.close()
            worker.run(theirs, stderr, compiler, most_jobs)
        except BaseException:  # noqa: BLE001 - whatever happens, a worker never returns into the template's loop
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)
    theirs.close()
    pidfd = os.pidfd_open(pid)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers, and their pidfds tell
    with contextlib.suppress(ChildProcessError):  # there is none
        while os.waitpid(-1, os.WNOHANG)[0]:  # those that died meanwhile
            pass
    forked = worker_messages.packet(worker_messages.Forked(pid=pid))
    socket.send_fds(control, [forked], [ours.fileno(), pidfd, stderr])
    ours.close()
    os.close(pidfd)
    os.close(stderr)


if __name__ == "__main__":
    main()

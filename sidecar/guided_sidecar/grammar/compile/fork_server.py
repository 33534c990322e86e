"""The template process: imports the libraries and reads the tokenizer once, then forks workers in no time.

Runs `python -m guided_sidecar.grammar.compile.fork_server FD`, FD being its end of a SOCK_SEQPACKET pair. It
has one thread, so that forking it is safe, and is the parent of all workers: it reaps them and reports their
deaths.
"""

import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import NoReturn

from guided_contract import backends, processes
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar import settings
from guided_sidecar.grammar import trust, worker_messages
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.compile import imports, vocabulary, worker
from guided_sidecar.grammar.compile.compilation import Compiler

Work = Callable[[socket.socket, int], NoReturn]  # a worker's, on its stream and standard error


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
    compiler = Compiler(Backends(words, Threads(compile=threads)), words, pod.grammars_folder)
    compiler.warm()
    # Objects that exist now are not looked at by a worker's collector: their pages stay shared.
    gc.collect()
    gc.freeze()
    ready = worker_messages.Ready(
        tokenizer=words.fingerprints,
        vocab_size=words.vocab_size,
        versions={name: _version(name) for name in backends.DISTRIBUTIONS},
        resident_bytes=worker.resident_bytes(),
    )
    control.send(worker_messages.packet(ready))
    work: Work = lambda stream, stderr: worker.run(  # noqa: E731 - what every worker inherits, warm
        stream, stderr, compiler, configuration.jobs_per_worker
    )
    _serve(control, work)


def _serve(control: socket.socket, work: Work) -> None:
    """Fork on request, reap and report, until the service closes its end."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == woken:
                os.read(woken, 4096)
                _reap(control)
            elif control.recv(worker_messages.MAX_PACKET_BYTES):
                _fork(control, work)
            else:
                return


def _fork(control: socket.socket, work: Work) -> None:
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            ours.close()
            work(theirs, stderr)
        except BaseException:  # noqa: BLE001 - whatever happens, a worker never returns into the template's loop
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)
    theirs.close()
    pidfd = os.pidfd_open(pid)
    forked = worker_messages.packet(worker_messages.Forked(pid=pid))
    socket.send_fds(control, [forked], [ours.fileno(), pidfd, stderr])
    ours.close()
    os.close(pidfd)
    os.close(stderr)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):  # it would keep its job until the deadline, and never say so
            os.kill(pid, signal.SIGKILL)
            continue
        control.send(worker_messages.packet(worker_messages.Exited(pid=pid, status=status)))


def _version(name: str) -> str:
    """Return an installed version; where nobody can tell, that."""
    try:
        found: str | None = metadata.version(name)  # None where its metadata names none
    except metadata.PackageNotFoundError:
        found = None
    return found or trust.UNKNOWN


if __name__ == "__main__":
    main()

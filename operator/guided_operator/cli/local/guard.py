"""The init of a local container: runs one command, and leaves no process of it behind, whatever dies first.

Started as `python -I -S guard.py PARENT FOLDER COMMAND...`, as a script and not by `-m`, so that nothing else
of ours is imported. PARENT is the process id of who starts it. It is told by signals what to do:

* TERM: pass it to the command and go on waiting, as a container runtime does;
* HUP, which the kernel sends too when the parent dies, even by SIGKILL: kill everything now.

Where the parent is dead in the end, FOLDER is removed, for which nobody else is left.

The exit status is the command's (128 + N after signal N). Whatever the command left running is killed with
it, also daemons: as a child subreaper this process inherits all orphans. Shared memory that they had mapped
goes, too: a container's is private and ends with it, a local process's stays (vLLM leaves some even when it
ends in order).
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HEARD = {signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
_KILLED = 137
_ABSENT = 127
_LOOK_S = 2.0  # for what is mapped: a process that is killed tells nobody
_LOOK_AGAIN_S = 0.1  # while it ends: it goes on mapping until it has heard


def main(parent: int, folder: str, command: list[str]) -> int:
    """Run `command` until it or the parent ends; return the exit status."""
    # From here on signals wait until they are asked for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != parent:  # it was dead before the kernel knew of our wish
        signal.raise_signal(signal.SIGHUP)

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should the guard itself be killed, its command goes too
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    not_ours = _shared_memory().keys()
    try:
        child = subprocess.Popen(command, preexec_fn=prepare)  # noqa: S603, PLW1509 - what this is for; no threads
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _ABSENT
    mapped: set[int] = set()
    look_again_s = _LOOK_S
    while True:
        heard = signal.sigtimedwait(_HEARD, look_again_s)
        number = heard.si_signo if heard else None
        mapped |= _mapped()
        status = child.poll()
        if status is not None or number == signal.SIGHUP:
            break
        if number == signal.SIGTERM:
            look_again_s = _LOOK_AGAIN_S
            child.terminate()
    _end_all(mapped - not_ours)
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    if status is None:
        return _KILLED
    return status if status >= 0 else 128 - status


def _end_all(mapped: set[int]) -> None:
    """Kill every process below this one, and remove the files in shared memory that have these inodes."""
    with contextlib.suppress(ChildProcessError):
        while True:  # those orphaned on the way come to us, and are found, too
            for pid in _below(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)
    for inode, path in _shared_memory().items():
        if inode in mapped:
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                path.unlink()


def _shared_memory() -> dict[int, Path]:
    """Return the files in POSIX shared memory, by inode."""
    return {entry.inode(): Path(entry.path) for entry in os.scandir("/dev/shm")}  # noqa: S108 - where it is


def _mapped() -> set[int]:
    """Return the inodes of the files in shared memory that a process below this one has mapped."""
    # No paths: a semaphore is linked to its name after it was mapped, and maps show the name before.
    found = set()
    for pid in _below(os.getpid()):
        with contextlib.suppress(OSError):  # it ended meanwhile
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                # Address, access, offset, device, inode, and the path, if there is one.
                field = line.split(maxsplit=5)
                if len(field) == 6 and field[5].startswith("/dev/shm/"):  # noqa: S108 - as above
                    found.add(int(field[4]))
    return found


def _below(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):  # it ended meanwhile
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                yield child
                yield from _below(child)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))

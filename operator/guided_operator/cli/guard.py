"""The init of a local container: runs one command, and leaves no process of it behind, whatever dies first.

Started as `python -I -S guard.py FD FOLDER COMMAND...`, as a script and not by `-m`, so that nothing else of
ours is imported. FD is the read end of a pipe whose write end the parent holds for its life:

* a byte comes: kill everything now;
* end of file (the parent died, even by SIGKILL): the same, and remove FOLDER, for which nobody else is left;
* SIGTERM: pass it to the command and go on waiting, as a container runtime does.

The exit status is the command's (128 + N after signal N). Whatever the command left running is killed with
it, also daemons: as a child subreaper this process inherits all orphans.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
KILLED = 137


def main(lifeline: int, folder: str, command: list[str]) -> int:
    """Run `command` until it or the parent ends; return the exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # the wake-up pipe tells
    child = _spawn(libc, command)
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if lifeline in ready:
            parent_lives = bool(os.read(lifeline, 1))
            _kill_all()
            if not parent_lives:
                shutil.rmtree(folder, ignore_errors=True)
            return KILLED
        signals = os.read(woken, 4096)
        status = _reap(child)
        if status is not None:
            _kill_all()
            return status
        if signal.SIGTERM in signals or signal.SIGINT in signals:
            os.kill(child, signal.SIGTERM)


def _spawn(libc: ctypes.CDLL, command: list[str]) -> int:
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    # Should the guard itself be killed, its command goes too.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(KILLED)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a command would inherit that
    try:
        os.execvp(command[0], command)  # noqa: S606 - running the given command is what this program is for
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _reap(child: int) -> int | None:
    """Collect all ended processes; return the command's exit status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def _kill_all() -> None:
    """Kill every process below this one. Those orphaned on the way come to us, so the loop finds them too."""
    while True:
        for pid in _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _descendants() -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            # After the name, which stands in brackets and may hold anything: state, parent.
            parents[int(entry.name)] = int(stat.rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    size = 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found - {os.getpid()})


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))

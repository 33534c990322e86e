"""The init of a local container: runs one command, and leaves no process of it behind, whatever dies first.

Started as `python -I -S guard.py FD FOLDER COMMAND...`, as a script and not by `-m`, so that nothing else of
ours is imported. FD is the read end of a pipe whose write end the parent holds for its life:

* a byte comes: kill everything now;
* end of file (the parent died, even by SIGKILL): the same, and remove FOLDER, for which nobody else is left;
* SIGTERM: pass it to the command and go on waiting, as a container runtime does.

The exit status is the command's (128 + N after signal N). Whatever the command left running is killed with
it, also daemons: as a child subreaper this process inherits all orphans. Shared memory that they had mapped
goes, too: a container's is private and ends with it, a local process's stays (vLLM leaves some even when it
ends in order).
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
KILLED = 137
ABSENT = 127
_LOOK_S = 2.0  # for what is mapped: a process that is killed tells nobody
_LOOK_AGAIN_S = 0.1  # while it ends: it goes on mapping until it has heard
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is


def main(lifeline: int, folder: str, command: list[str]) -> int:
    """Run `command` until it or the parent ends; return the exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # the wake-up pipe tells
    not_ours = set(_shared_memory().values())
    try:
        child = subprocess.Popen(  # noqa: S603 - running the given command is what this program is for
            command,
            # Should the guard itself be killed, its command goes too.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - no threads
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return ABSENT
    mapped: set[Path] = set()
    look_again_s = _LOOK_S
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [], look_again_s)
        mapped |= _mapped()
        if lifeline in ready:
            parent_lives = bool(os.read(lifeline, 1))
            _end_all(mapped, not_ours)
            if not parent_lives:
                shutil.rmtree(folder, ignore_errors=True)
            return KILLED
        signals = os.read(woken, 4096) if woken in ready else b""
        status = _reap(child.pid)
        if status is not None:
            _end_all(mapped, not_ours)
            return status
        if signal.SIGTERM in signals or signal.SIGINT in signals:
            look_again_s = _LOOK_AGAIN_S
            os.kill(child.pid, signal.SIGTERM)


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


def _end_all(mapped: set[Path], not_ours: set[Path]) -> None:
    """Kill what is left, and remove what it and those before it had mapped."""
    mapped |= _mapped()
    _kill_all()
    for file in mapped - not_ours:
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            file.unlink()


def _shared_memory() -> dict[int, Path]:
    """Return what is in shared memory, by inode."""
    if not _SHARED_MEMORY.is_dir():
        return {}
    return {entry.inode(): Path(entry.path) for entry in os.scandir(_SHARED_MEMORY)}


def _mapped() -> set[Path]:
    """Return the files in shared memory that a process below this one has mapped."""
    # By inode: a semaphore is linked to its name after it was mapped, and maps show the name before.
    files = _shared_memory()
    found = set()
    for pid in _descendants():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        # Address, access, offset, device, inode, and the path, if there is one.
        fields = (line.split(maxsplit=5) for line in maps.splitlines())
        found |= {
            files[int(field[4])]
            for field in fields
            if len(field) == 6 and int(field[4]) in files and field[5].startswith(f"{_SHARED_MEMORY}/")
        }
    return found


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

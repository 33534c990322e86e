"""Takes away what the grammar service stands on: its tmpfs, its connections."""

import contextlib
import ctypes
import errno
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.pod import Pod

TMPFS_SIZE: Final = "96m"
_PIDFD_GETFD: Final = 438  # the same number on every architecture
_BLOCK: Final = b"x" * 4096


class _ForbiddenError(Exception):
    """This user may not look into another process."""


@contextlib.contextmanager
def small_tmpfs() -> Iterator[dict[str, str] | None]:
    """Yield an environment in which a pod's run folder is a small file system of its own.

    None where this user may mount none.
    """
    folder = Path(tempfile.mkdtemp(prefix="gmc-"))  # short: sockets lie below it
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_SIZE},mode=0700", "chaos", str(folder)]
    is_mounted = not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield {"TMPDIR": str(folder)} if is_mounted else None
    finally:
        if is_mounted:
            # Lazily: the last process of the pod may still be on its way out.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def is_small(folder: str) -> bool:
    """Return whether a folder lies in a file system that can be filled."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize <= 128 << 20


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder for as long as the body lasts."""
    filler = folder / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(_BLOCK)
        yield
    finally:
        filler.unlink()


def cut_connections(pod: Pod) -> int | None:
    """Shut down every connection of the service's socket, as seen from the service; return how many.

    None where this user may not take another process's descriptors.
    """
    service = pod.sidecar.service_pid()
    assert service is not None
    socket_name = pod.config.service_socket.name
    cut = 0
    process = os.pidfd_open(service)
    try:
        for link in Path(f"/proc/{service}/fd").iterdir():
            with contextlib.suppress(OSError), _copied(process, int(link.name)) as copy:
                # Bound by another name and renamed: see server.py.
                is_unix = copy.family == socket.AF_UNIX
                if is_unix and socket_name in str(copy.getsockname()) and _is_connected(copy):
                    copy.shutdown(socket.SHUT_RDWR)
                    cut += 1
    except _ForbiddenError:
        return None
    finally:
        os.close(process)
    return cut


@contextlib.contextmanager
def _copied(process: int, descriptor: int) -> Iterator[socket.socket]:
    """Yield a copy of another process's socket; OSError where it is none, or none any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    copy = int(libc.syscall(_PIDFD_GETFD, process, descriptor, 0))
    if copy < 0:
        if ctypes.get_errno() == errno.EPERM:
            raise _ForbiddenError
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        found = socket.socket(fileno=os.dup(copy)) if stat.S_ISSOCK(os.fstat(copy).st_mode) else None
    finally:
        os.close(copy)
    if found is None:
        raise OSError(errno.ENOTSOCK, "no socket")
    with found:
        yield found


def _is_connected(connection: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        connection.getpeername()
        return True
    return False


def resident_bytes(pod: Pod) -> int:
    """Return what the service has in memory."""
    service = pod.sidecar.service_pid()
    assert service is not None
    pages = int(Path(f"/proc/{service}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

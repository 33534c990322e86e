"""Takes away what the grammar service stands on: its disk, its tmpfs, its connections, its collector."""

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.chaos.staging import Report, Setting, choose, is_whole, long_requests, phase, spell
from support.pod import Pod

TMPFS_SIZE: Final = "96m"
DISK_SIZE: Final = "16m"
_PIDFD_GETFD: Final = 438  # the same number on every architecture
_MOST_GROWTH_MIB: Final = 64
_DISK_FAILURES: Final = 'guidedmodel_grammar_disk_writes_total{result="failed"}'
_BLOCK: Final = b"x" * 4096


class _ForbiddenError(Exception):
    """This user may not look into another process."""


@contextlib.contextmanager
def small_file_systems() -> Iterator[dict[str, str] | None]:
    """Yield an environment in which a pod's run folder and cache are small file systems of their own.

    None where this user may mount none.
    """
    folder = Path(tempfile.mkdtemp(prefix="gmc-"))  # short: sockets lie below it
    mounted: list[Path] = []
    try:
        for name, size in (("t", TMPFS_SIZE), ("h", DISK_SIZE)):
            place = folder / name
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "chaos", str(place)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                break
            mounted.append(place)
        is_whole = len(mounted) == 2
        yield {"TMPDIR": str(mounted[0]), "GUIDEDMODEL_HOME": str(mounted[1])} if is_whole else None
    finally:
        for place in mounted:
            # Lazily: the last process of the pod may still be on its way out.
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        for place in (*folder.iterdir(), folder):
            place.rmdir()


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
def hung_collector(pod: Pod) -> Iterator[None]:
    """Stop the process that collects traces, `guidedmodel run` itself, for as long as the body lasts."""
    os.kill(pod.child.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pod.child.pid, signal.SIGCONT)


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


async def surroundings(setting: Setting, hung_s: float = 8.0) -> Report:
    """Take disk, tmpfs, connections and collector away, one after the other, the collector for `hung_s`."""
    pod = setting.pod
    async with phase(setting, "surroundings") as report:
        if setting.has_small_file_systems:
            await _without_disk(setting, report)
            await _without_tmpfs(setting, report)
        else:
            report.row("disk and tmpfs full", "not shown: no file system can be mounted here")
        await _without_connections(setting, report)
        before = resident_bytes(pod)
        with hung_collector(pod):
            await asyncio.sleep(hung_s)
        grown = (resident_bytes(pod) - before) >> 20
        report.row("collector hung", f"for {hung_s:g} s; the service grew by {grown} MiB")
        report.promise(grown < _MOST_GROWTH_MIB, f"the service grew by {grown} MiB without its collector")
    report.faults([answer.why for answer in setting.load.answers if not answer.is_turned_away])
    return report


async def _without_disk(setting: Setting, report: Report) -> None:
    disk = setting.pod.config.grammar_cache_dir
    assert disk is not None
    with full(Path(disk)):
        answers = [await choose(setting.client, f"no disk {number}") for number in range(5)]
        await asyncio.sleep(1.5)  # metrics are of a reading each second
        lost = await _metric(setting, _DISK_FAILURES)
    report.faults([f"disk full: {answer.why}" for answer in answers if answer.why])
    report.row("disk full", f"{len(answers)} requests answered, {lost:.0f} writes counted as failed")
    report.promise(lost >= len(answers), f"{lost:.0f} failed writes were counted")


async def _without_tmpfs(setting: Setting, report: Report) -> None:
    await spell(setting.client, "known")
    with full(Path(setting.pod.config.run_dir)):
        unseen = await spell(setting.client, "no tmpfs")
        known = await spell(setting.client, "known")
    report.row("tmpfs full", f"{unseen.status} {unseen.code}, Retry-After {unseen.retry_after}")
    report.promise(
        unseen.is_turned_away and unseen.code == "grammar_storage_full", "tmpfs full: no such code"
    )
    report.promise(not known.why, f"tmpfs full, a known grammar: {known.why}")
    again = await spell(setting.client, "no tmpfs")
    report.promise(not again.why, f"tmpfs with room again: {again.why}")


async def _without_connections(setting: Setting, report: Report) -> None:
    async with long_requests(setting.client) as long:
        await asyncio.sleep(0.5)
        cut = await asyncio.to_thread(cut_connections, setting.pod)
        begin = time.monotonic()
        after = await choose(setting.client, "after the cut")
        took_s = time.monotonic() - begin
    report.row("connections cut", f"{cut}; the next new grammar took {took_s:.2f} s")
    report.promise(cut is None or cut > 1, "there was nothing to cut")
    report.promise(not after.why, f"after the cut: {after.why}")
    report.faults([f"long request: {one.why or one.tokens}" for one in long if not is_whole(one)])


async def _metric(setting: Setting, start: str) -> float:
    """Return the sum of the sidecar's metrics whose line begins so."""
    url = f"http://127.0.0.1:{setting.pod.ports.sidecar}/metrics"
    lines = (await setting.client.get(url)).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start))

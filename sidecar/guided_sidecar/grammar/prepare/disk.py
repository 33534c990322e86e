"""Proven grammars on disk: what was compiled once is not compiled again after a restart.

A file per key, readable and writable for this user alone, written whole or not at all. It begins with the
SHA-256 of the rest. What is not as it was written, or not ours, is deleted and compiled again. A key holds
the tokenizer, the libraries' versions and a hash of our own code (keys.py), so another's file is never asked
for.

No fault of the disk reaches a request: a read that fails or takes long is a miss, a write that fails is
counted and forgotten.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from guided_contract.decoding import MALFORMED
from guided_sidecar.grammar import artifacts, worker_messages
from guided_sidecar.grammar.worker_messages import Done

T = TypeVar("T")
_log = logging.getLogger(__name__)
_HASH_BYTES: Final = 32
_MOST_BYTES: Final = 80 << 20  # of one file: an artefact's limit, and room
_KEY_LENGTH: Final = 64  # hex digits
_READ_TIMEOUT_S: Final = 1.0  # a slow disk costs less than a compile, a stuck one must not cost a request
_START_TIMEOUT_S: Final = 10.0
_MOST_QUEUED: Final = 64


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A file's content after the hash. `artifact`: what ranks read, for a backend that has such a file."""

    key: str
    done: Done
    artifact: bytes | None


class _SpoiltError(Exception):
    """A file is not as it was written, or not ours; the message says which."""


@dataclasses.dataclass(slots=True)
class DiskCounts:
    """What became of reads and writes. `spoilt`: files that could not be believed, and were deleted.

    `entries` and `size_bytes`: what is stored now.
    """

    hits: int = 0
    misses: int = 0
    spoilt: int = 0
    evictions: int = 0
    writes: int = 0
    failed_writes: int = 0
    entries: int = 0
    size_bytes: int = 0


class GrammarDisk:
    """The grammars of one folder, the least recently used deleted first.

    Parameters
    ----------
    folder
        Made if it is not there, for this user alone. One that is somebody else's is not used. None: nothing
        is kept.
    most_entries, most_bytes
        Kept at most.
    grammars_folder
        Where artefacts are put for the ranks.
    """

    def __init__(
        self, folder: Path | None, most_entries: int, most_bytes: int, grammars_folder: Path
    ) -> None:
        self.counts = DiskCounts()
        self._folder = folder or Path()
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._grammars_folder = grammars_folder
        self._sizes: collections.OrderedDict[str, int] = collections.OrderedDict()
        self._queued = 0
        self._wanted = folder is not None
        self._usable = False
        # One thread: what it does to the folder and to the figures above is in order, and off the event loop.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="grammar-disk")

    async def start(self) -> None:
        """Find what an earlier service left; without a folder that can be used, do nothing from now on."""
        if self._wanted:
            with contextlib.suppress(TimeoutError):
                await self._do(self._open, _START_TIMEOUT_S)

    async def stop(self) -> None:
        """Drop what is queued; what is being written is written whole."""
        self._usable = False
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def get(self, key: str) -> Done | None:
        """Return a stored grammar, its artefact put where ranks find it; None: it has to be compiled."""
        if not self._usable:
            return None
        try:
            stored = await self._do(lambda: self._get(key), _READ_TIMEOUT_S)
            if stored is None:
                return None
            if stored.artifact is not None:
                # Not by the disk's thread: one that comes late must not write over what a worker compiled.
                await asyncio.to_thread(artifacts.write, self._grammars_folder, key, stored.artifact)
        except TimeoutError:
            _log.warning("the grammar cache's disk takes over %g s", _READ_TIMEOUT_S)
            return None
        except OSError as error:
            _log.warning("a grammar from the disk has no room beside the ranks: %s", error)
            return None
        return stored.done

    def put(self, key: str, done: Done) -> None:
        """Store a grammar that has just been compiled, some time soon."""
        if self._usable and self._queued < _MOST_QUEUED:
            self._submit(lambda: self._put(key, done))

    def drop(self, key: str) -> None:
        """Delete a grammar that turned out not to be usable."""
        if self._usable:
            self._submit(lambda: self._delete(key))

    async def _do(self, work: Callable[[], T], timeout_s: float) -> T | None:
        if self._queued >= _MOST_QUEUED:
            return None
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        self._queued += 1
        future = self._thread.submit(work)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call(loop, self._done_one))
        return future

    def _done_one(self) -> None:
        self._queued -= 1

    # Below: on the thread.

    def _open(self) -> None:
        try:
            _take(self._folder)
            self._scan()
        except OSError as error:
            _log.warning("grammars are not kept on disk in %s: %s", self._folder, error)
            return
        self._usable = True
        self._evict()

    def _scan(self) -> None:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith(artifacts.UNFINISHED):
                    Path(entry.path).unlink(missing_ok=True)
                elif len(entry.name) == _KEY_LENGTH:
                    about = entry.stat(follow_symlinks=False)
                    found.append((about.st_mtime_ns, entry.name, about.st_size))
        for _, key, size in sorted(found):
            self._count(key, size)

    def _get(self, key: str) -> _Stored | None:
        path = self._folder / key
        try:
            stored = _read(path, key)
            os.utime(path)
            self._count(key, path.stat().st_size)
        except _SpoiltError as error:
            _log.warning("deleting a grammar from the disk, to be compiled again: %s: %s", key, error)
            self.counts.spoilt += 1
            self._delete(key)
            return None
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.warning("a grammar could not be read from the disk: %s", error)
            self.counts.misses += 1
            self._forget(key)
            return None
        self.counts.hits += 1
        return stored

    def _put(self, key: str, done: Done) -> None:
        try:
            artifact = None
            if done.artifact is not None:
                artifact = (self._grammars_folder / done.artifact).read_bytes()
            body = msgspec.msgpack.encode(_Stored(key, done, artifact))
            content = hashlib.sha256(body).digest() + body
            artifacts.write(self._folder, key, content)
        except OSError as error:
            _log.warning("a grammar could not be written to the disk: %s", error)
            artifacts.discard_unfinished(self._folder, os.getpid())
            self.counts.failed_writes += 1
            return
        self.counts.writes += 1
        self._count(key, len(content))
        self._evict()

    def _evict(self) -> None:
        while self._sizes and (
            self.counts.entries > self._most_entries or self.counts.size_bytes > self._most_bytes
        ):
            self._delete(next(iter(self._sizes)))
            self.counts.evictions += 1

    def _count(self, key: str, size: int) -> None:
        self._forget(key)
        self._sizes[key] = size
        self.counts.size_bytes += size
        self.counts.entries = len(self._sizes)

    def _forget(self, key: str) -> None:
        self.counts.size_bytes -= self._sizes.pop(key, 0)
        self.counts.entries = len(self._sizes)

    def _delete(self, key: str) -> None:
        self._forget(key)
        try:
            (self._folder / key).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s cannot be deleted: %s", key, error)


def _take(folder: Path) -> None:
    """Make a folder, or take one that is ours, for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise OSError("it is not a folder of our user's")
    folder.chmod(0o700)


def _read(path: Path, key: str) -> _Stored:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise _SpoiltError("it is not a file of our user's alone")
        if about.st_size > _MOST_BYTES:
            raise _SpoiltError(f"it has {about.st_size} bytes")
        content = stream.read(_MOST_BYTES)
    if hashlib.sha256(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
        raise _SpoiltError("its content is not what was written")
    try:
        stored = msgspec.msgpack.decode(memoryview(content)[_HASH_BYTES:], type=_Stored)
        worker_messages.check(stored.done, key)
    except (*MALFORMED, worker_messages.JobError) as error:
        raise _SpoiltError(str(error)) from error
    artifact = None if stored.artifact is None else hashlib.sha256(stored.artifact).hexdigest()
    if stored.key != key or stored.done.sha256 != artifact:
        raise _SpoiltError("it is another grammar")
    return stored


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function)

"""What a file of the grammar cache on disk may hold: either it is what was written, or it is deleted."""

import asyncio
import hashlib
import random
import shutil
import tempfile
from pathlib import Path
from typing import Final

from guided_contract.counting import Position
from guided_sidecar.grammar import artifacts, worker_messages
from guided_sidecar.grammar.prepare.disk import GrammarDisk
from guided_sidecar.grammar.worker_messages import Done
from support.fuzz import mutation
from support.fuzz.target import Target

KEY: Final = "0123456789abcdef" * 4
_HASH_BYTES: Final = 32
_ARTIFACT: Final = b'{"compiled": true}' * 9
_DONE: Final = (
    Done(backend="xgrammar", artifact=KEY, sha256=hashlib.sha256(_ARTIFACT).hexdigest(), size_bytes=162),
    Done(backend="guidance", spec="{}", positions=[Position(maximum=3, others=0)], size_bytes=2),
)


def target() -> Target:
    """Return the target. An input is a file's content."""
    cache = _Cache()
    return Target(cache.seeds, _changed, cache.run, cache.close)


def _changed(data: bytes, chance: random.Random) -> bytes:
    """Change bytes, or a value, and the hash with it: then the content must be refused for what it is."""
    if chance.random() < 0.3:
        return mutation.some_bytes(data, chance)
    body = mutation.either(mutation.msgpack_value)(data[_HASH_BYTES:], chance)
    return hashlib.sha256(body).digest() + body


class _Cache:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._run = self._folder / "run"
        self._run.mkdir()
        self._disk = GrammarDisk(self._folder / "disk", 100, 1 << 20, self._run)
        self._loop.run_until_complete(self._disk.start())
        self.seeds = [self._loop.run_until_complete(self._written(done)) for done in _DONE]

    def close(self) -> None:
        self._loop.run_until_complete(self._disk.stop())
        self._loop.close()
        shutil.rmtree(self._folder)

    def run(self, data: bytes) -> None:
        file = self._folder / "disk" / KEY
        file.write_bytes(data)
        file.chmod(0o600)
        (self._run / KEY).unlink(missing_ok=True)
        found = self._loop.run_until_complete(self._disk.get(KEY))
        if found is None:
            assert not file.exists(), "it would be refused again and again"
            assert not (self._run / KEY).exists()
            return
        # By a hash of its own it may be another grammar, but a whole one.
        assert data in self.seeds or hashlib.sha256(data[_HASH_BYTES:]).digest() == data[:_HASH_BYTES]
        worker_messages.check(found, KEY)
        if found.artifact is not None:
            content = (self._run / KEY).read_bytes()
            assert hashlib.sha256(content).hexdigest() == found.sha256
        if data in self.seeds:
            assert found == _DONE[self.seeds.index(data)]

    async def _written(self, done: Done) -> bytes:
        if done.artifact is not None:
            artifacts.write(self._run, KEY, _ARTIFACT)
        self._disk.put(KEY, done)
        await self._disk.get("0" * len(KEY))  # after what is queued
        return (self._folder / "disk" / KEY).read_bytes()

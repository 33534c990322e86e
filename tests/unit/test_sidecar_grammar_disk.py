"""Grammars on disk: they come back as they were, within bounds, and nothing else does."""

import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.prepare import cache_keys
from guided_sidecar.grammar.prepare.disk import GrammarDisk
from guided_sidecar.grammar.worker_messages import Done

CONTENT = b'{"compiled": true}'


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@asynccontextmanager
async def opened(
    folder: Path, *, most_entries: int = 100, most_bytes: int = 1 << 20
) -> AsyncIterator[GrammarDisk]:
    """A started disk of `folder`, whose artefacts go to a new service's folder."""
    artifacts.reset(folder / "run")
    disk = GrammarDisk(folder / "disk", most_entries, most_bytes, folder / "run")
    await disk.start()
    yield disk
    await disk.stop()


def compiled(folder: Path, number: int, content: bytes = CONTENT) -> Done:
    """Return what a worker answers that has compiled with xgrammar."""
    sha256 = artifacts.write(folder / "run", key(number), content)
    return Done(backend="xgrammar", artifact=key(number), sha256=sha256, size_bytes=len(content))


async def written(disk: GrammarDisk, number: int) -> None:
    """Wait for what is queued: the thread does one thing after the other."""
    await disk.get(key(-number - 1))


async def test_a_grammar_survives_the_service(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        done = compiled(tmp_path, 1)
        first.put(key(1), done)
        text = Done(backend="guidance", spec="{}", size_bytes=2)
        first.put(key(2), text)
        await written(first, 2)
    async with opened(tmp_path) as second:
        assert not list((tmp_path / "run").iterdir())

        assert await second.get(key(1)) == done
        assert await second.get(key(2)) == text

        assert (tmp_path / "run" / key(1)).read_bytes() == CONTENT
        assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "disk" / key(1)).stat().st_mode & 0o777 == 0o600
        assert (second.counts.hits, second.counts.misses) == (2, 0)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _open_to_others(path: Path) -> None:
    path.chmod(0o640)


def _give_away(path: Path) -> None:
    os.chown(path, 65534, 65534)


def _another(path: Path) -> None:
    path.write_bytes((path.parent / key(2)).read_bytes())
    path.chmod(0o600)


def _nonsense(path: Path) -> None:
    body = b"\x93nonsense"
    path.write_bytes(hashlib.sha256(body).digest() + body)


SPOILT = [_flip, _halve, _empty, _open_to_others, _give_away, _another, _nonsense]


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda one: one.__name__)
async def test_a_file_that_is_not_as_it_was_written_is_deleted(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    if spoil is _give_away and os.geteuid() != 0:
        pytest.skip("only root can give a file to another user: run as root")
    async with opened(tmp_path) as disk:
        for number in (1, 2):
            disk.put(key(number), compiled(tmp_path, number))
        await written(disk, 2)
        (tmp_path / "run" / key(1)).unlink()
        spoil(tmp_path / "disk" / key(1))

        assert await disk.get(key(1)) is None

        assert disk.counts.spoilt == 1
        assert not (tmp_path / "disk" / key(1)).exists()
        assert not (tmp_path / "run" / key(1)).exists()
        assert await disk.get(key(2))


async def test_a_link_is_not_followed_and_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        disk.put(key(1), compiled(tmp_path, 1))
        await written(disk, 1)
        target = tmp_path / "elsewhere"
        (tmp_path / "disk" / key(1)).rename(target)
        (tmp_path / "disk" / key(1)).symlink_to(target)

        assert await disk.get(key(1)) is None
        disk.put(key(1), compiled(tmp_path, 1))
        await written(disk, 1)

        assert await disk.get(key(1))
        assert target.exists()


async def test_the_least_recently_used_goes_first_also_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        for number in range(4):
            disk.put(key(number), compiled(tmp_path, number))
        await written(disk, 4)
        assert await disk.get(key(0))
        for number in range(4):  # a file system's clock may tick too slowly to tell them apart
            os.utime(tmp_path / "disk" / key(number), ns=(0, number))
        os.utime(tmp_path / "disk" / key(0), ns=(0, 10))
    async with opened(tmp_path, most_entries=2) as disk:
        assert {path.name for path in (tmp_path / "disk").iterdir()} == {key(0), key(3)}
        disk.put(key(5), compiled(tmp_path, 5))
        await written(disk, 5)
        assert {path.name for path in (tmp_path / "disk").iterdir()} == {key(0), key(5)}


async def test_bytes_are_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path, most_bytes=5000) as disk:
        for number in range(10):
            disk.put(key(number), compiled(tmp_path, number, b"x" * 1500))
        await written(disk, 10)
        sizes = [path.stat().st_size for path in (tmp_path / "disk").iterdir()]
        assert 3000 < sum(sizes) <= 5000
        assert await disk.get(key(9))


async def test_what_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        done = compiled(tmp_path, 1, b"x" * 5000)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # a disk that is full after 1,000 bytes
        try:
            disk.put(key(1), done)
            await written(disk, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        assert disk.counts.failed_writes == 1
        assert not list((tmp_path / "disk").iterdir())
        disk.put(key(1), done)
        await written(disk, 1)
        assert await disk.get(key(1)) == done


async def test_what_a_killed_service_had_begun_is_removed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "disk" / f".part-1-{key(1)}").write_bytes(b"x")
    async with opened(tmp_path):
        assert not list((tmp_path / "disk").iterdir())
        assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o700


async def test_a_folder_that_cannot_be_used_costs_nothing_but_the_cache(tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("a file")
    async with opened(tmp_path) as disk:
        disk.put(key(1), compiled(tmp_path, 1))
        assert await disk.get(key(1)) is None
        disk.drop(key(1))


def test_keys_change_with_our_own_code(tmp_path: Path) -> None:
    """Or a folder that outlives a release would serve what that release got wrong."""
    module = tmp_path / "below" / "rules.py"
    module.parent.mkdir()
    prints = set()
    for text in ("a = 1", "a = 2"):
        module.write_text(text)
        cache_keys.code_fingerprint.cache_clear()
        prints.add(cache_keys.code_fingerprint(tmp_path))
    assert len(prints) == 2


def test_keys_know_all_code_that_compiles_and_proves() -> None:
    """Whatever a worker imports of ours, but for what only carries its messages and its settings."""
    code = """
import sys
from guided_sidecar.grammar.compile import imports
imports.without_torch()
from guided_contract import backends
from guided_grammar.llguidance import backend
from guided_grammar.registry import library
from guided_grammar.xgrammar import backend
from guided_sidecar.grammar.compile import compilation
for name in backends.NAMES.values():
    library(name).lacks("json", {})
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("guided_")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    imported = {Path(file) for file in done.stdout.split()}
    known = {
        file for place in cache_keys.OUR_CODE for file in (place.rglob("*.py") if place.is_dir() else [place])
    }

    assert {file.name for file in imported - known} <= {
        "__init__.py", "backends.py", "config.py", "decoding.py", "errors.py", "fingerprint.py", "names.py",
        "otel_environment.py", "trace_context.py", "wire.py",
    }  # fmt: skip
    assert len(imported & known) > 20


async def test_a_dropped_grammar_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        disk.put(key(1), compiled(tmp_path, 1))
        disk.drop(key(1))
        assert await disk.get(key(1)) is None
        assert not list((tmp_path / "disk").iterdir())

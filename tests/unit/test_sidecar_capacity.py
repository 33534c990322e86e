"""How many grammars compile at once, and what each may take: from the container's limits, not the host's."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guided_contract import cgroup
from guided_contract.config import CompileConfig
from guided_sidecar.grammar.capacity import Capacity

MIB = 1 << 20
GIB = 1 << 30


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.mark.parametrize(
    ("max_", "above", "quota"),
    [
        ("max 100000", "max 100000", None),
        ("150000 100000", "max 100000", 1.5),
        ("max 100000", "50000 100000", 0.5),
        ("600000 100000", "200000 100000", 2.0),
    ],
)
def test_version_2_the_tightest_quota_from_here_up_counts(
    tmp_path: Path, max_: str, above: str, quota: float | None
) -> None:
    _write(tmp_path, cpu__max=above, memory__max="max")
    _write(tmp_path / "pod/container", cpu__max=max_, memory__max=str(GIB))
    _write(tmp_path / "self", membership="0::/pod/container")

    assert cgroup.cpu_quota(tmp_path, tmp_path / "self/membership") == quota
    assert cgroup.memory_limit(tmp_path, tmp_path / "self/membership") == GIB


def test_version_1_and_a_path_of_the_hosts_that_is_not_to_be_seen(tmp_path: Path) -> None:
    cpu = {"cpu__cfs_quota_us": "250000", "cpu__cfs_period_us": "100000"}
    _write(tmp_path / "cpu,cpuacct", **cpu)
    _write(tmp_path / "memory", memory__limit_in_bytes=str(2**63 - 4096))
    lines = "4:memory:/kubepods/pod1/c\n3:cpu,cpuacct:/kubepods/pod1/c\n1:name=systemd:/"
    _write(tmp_path / "self", membership=lines)

    assert cgroup.cpu_quota(tmp_path, tmp_path / "self/membership") == 2.5
    assert cgroup.memory_limit(tmp_path, tmp_path / "self/membership") is None
    _write(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="-1")
    assert cgroup.cpu_quota(tmp_path, tmp_path / "self/membership") is None
    assert cgroup.cpu_quota(tmp_path / "none", tmp_path / "none") is None


@contextlib.contextmanager
def _limited(cpus: float, memory_bytes: int) -> Iterator[list[Path]]:
    """Make a cgroup of this kernel's with a quota; yield the files that take a process in."""
    root = Path("/sys/fs/cgroup")
    name = f"guidedmodel-test-{os.getpid()}"
    v2 = (root / "cgroup.controllers").exists()
    folders = [root / name] if v2 else [root / "cpu" / name, root / "memory" / name]
    made: list[Path] = []
    try:
        try:
            for folder in folders:
                folder.mkdir()
                made.append(folder)
            if v2:
                (folders[0] / "cpu.max").write_text(f"{int(cpus * 100_000)} 100000")
                (folders[0] / "memory.max").write_text(str(memory_bytes))
            else:
                (folders[0] / "cpu.cfs_quota_us").write_text(str(int(cpus * 100_000)))
                (folders[1] / "memory.limit_in_bytes").write_text(str(memory_bytes))
        except OSError as error:
            pytest.skip(f"no cgroup can be made here ({error}): run as root")
        yield [folder / "cgroup.procs" for folder in folders]
    finally:
        for folder in made:
            folder.rmdir()


def test_a_process_in_a_real_cgroup_knows_its_share() -> None:
    """vLLM 49013: 86 threads in a pod of 6 CPUs."""
    program = (
        "import sys; sys.stdin.readline(); from guided_contract import cgroup; "
        "print(cgroup.cpu_quota(), cgroup.memory_limit())"
    )
    with _limited(0.5, 256 * MIB) as takers:
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for file in takers:
            file.write_text(str(child.pid))
        told, _ = child.communicate("\n", timeout=30)
    assert told.split() == ["0.5", str(256 * MIB)]


@pytest.mark.parametrize(
    ("asked", "cpus", "workers", "threads"),
    [(None, 0.5, 2, 1), (None, 2, 2, 2), (None, 8, 4, 4), (None, 192, 16, 8), (1, 192, 1, 8), (6, 0.5, 6, 1)],
)
def test_workers_and_threads_follow_the_share_of_cpus(
    asked: int | None, cpus: float, workers: int, threads: int
) -> None:
    found = Capacity.of(CompileConfig(workers=asked), cpus, None)
    assert (found.workers, found.threads) == (workers, threads)


def test_all_that_compile_at_once_fit_into_the_container() -> None:
    default = Capacity.of(CompileConfig(), 4, 4 * GIB)
    room = default.room_bytes(512 * MIB)
    each = default.compile_bytes(2 * GIB, room, 300 * MIB)
    assert room == 512 * MIB
    assert GIB < each < 2 * GIB
    assert 2 * each + room + 300 * MIB < 4 * GIB

    assert default.compile_bytes(256 * MIB, room, 300 * MIB) == 256 * MIB
    tight = Capacity.of(CompileConfig(workers=4), 4, GIB)
    assert tight.room_bytes(512 * MIB) == 128 * MIB
    assert tight.compile_bytes(2 * GIB, 128 * MIB, 300 * MIB) == 128 * MIB
    unlimited = Capacity.of(CompileConfig(), 4, None)
    assert unlimited.room_bytes(512 * MIB) == 512 * MIB
    assert unlimited.compile_bytes(2 * GIB, 0, 300 * MIB) == 2 * GIB

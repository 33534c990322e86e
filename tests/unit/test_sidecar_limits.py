"""What a text may hold before anybody compiles it, and what compiling may take: the container's share."""

import json
from pathlib import Path
from typing import Any

import pytest

from guided_contract import cgroup
from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_sidecar.grammar.capacity import Capacity
from guided_sidecar.grammar.prepare import jobs
from guided_sidecar.grammar.schema import limits

COUNTED = CompileConfig(max_depth=5, max_properties=3, max_enum=4, max_regex_chars=5)
TAG = {"structures": [{"begin": "<f>", "schema": {"enum": [1] * 5}, "end": "</f>"}], "triggers": ["<f"]}


def row(count: int, sign: str) -> str:
    """Return a grammar of rules in a row."""
    return "\n".join(f"?a{number}.2 {sign} a{number + 1}" for number in range(count))


def parsed(kind: Kind, spec: Any, config: CompileConfig = COUNTED) -> Any:
    return limits.parsed(kind, spec if isinstance(spec, str) else json.dumps(spec), config)


@pytest.mark.parametrize(
    ("kind", "spec", "code"),
    [
        ("json", json.dumps("x" * 999), "grammar_too_large"),
        ("regex", "ä" * 501, "grammar_too_large"),
        ("regex", "\ud800", "grammar_invalid"),
    ],
)
def test_the_service_refuses_what_is_too_long_or_no_text(kind: Kind, spec: str, code: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        jobs.taken(kind, spec, 1000)
    assert refusal.value.code == code


def test_the_service_takes_a_text_as_it_is() -> None:
    """Reading it is a worker's: a long one would hold up all others."""
    assert jobs.taken("json", "{" * 1000, 1000) == "{" * 1000
    assert not jobs.taken("json_object", "anything", 1000)


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("json", "[" * 400 + "]" * 400, None),
        ("json", '{"a":[[[[[1]]]]]}', None),
        ("json", {"properties": {name: {} for name in "abcd"}}, "$.properties"),
        (
            "json",
            {"properties": {"a": {"properties": dict.fromkeys("bcd")}}},
            "$.properties.a.properties",
        ),
        ("json", {"patternProperties": {name: {} for name in "abcd"}}, "$.patternProperties"),
        ("json", {"items": {"enum": [1, 2, 3, 4, 5]}}, "$.items.enum"),
        ("json", {"$defs": {"a b": {"pattern": "aaaaaa"}}}, "$.$defs['a b'].pattern"),
        ("structural_tag", TAG, "$.structures[0].schema.enum"),
        ("choice", list("abcde"), "$"),
        ("regex", "aaaaaa", None),
        ("grammar", row(5000, ":"), None),  # in a row, they end the process of a library that follows them
    ],
)
def test_what_holds_too_much_is_refused_with_its_path(kind: Kind, spec: Any, path: str | None) -> None:
    with pytest.raises(GuidedError) as refusal:
        parsed(kind, spec)
    assert (refusal.value.code, refusal.value.path) == ("grammar_too_large", path)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("json", {"properties": {"a": {}, "b": {"enum": [1, 2, 3, 4]}, "c": {"pattern": "aaaaa"}}}),
        ("json", {"const": {"properties": dict.fromkeys("abcdef"), "enum": [1] * 9, "pattern": "a" * 9}}),
        ("json", {"properties": {"enum": {"type": "null"}, "pattern": {"type": "null"}}}),
        ("json", {"properties": 5, "enum": "aaaaaaaaaaaaaaa", "pattern": ["a"] * 20}),
        ("grammar", "start: /aaaaaaaaaaaaaaaaaaaa/"),
        ("grammar", row(1500, ":")),
        ("grammar", row(5000, "::=")),
    ],
)
def test_what_holds_just_enough_passes(kind: Kind, spec: Any) -> None:
    assert parsed(kind, spec)


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

"""The ledger of changes, the plugin's entry point and the telemetry sender, without vLLM."""

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from guided_contract import config, names, records
from guided_contract.config import GuidedDecodingConfig, PodConfig
from guided_engine import ledger, plugin, versions
from guided_engine.compat import cpu
from guided_engine.ledger import LedgerEntry, PatchSkippedError
from guided_engine.telemetry import Telemetry

POD = PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/nowhere")


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test finds a process in which nothing has been tried."""
    monkeypatch.setattr(ledger, "_outcomes", {})


def entry(name: str, raises: Exception | None = None) -> tuple[LedgerEntry, list[PodConfig]]:
    calls: list[PodConfig] = []

    def apply(pod: PodConfig) -> None:
        calls.append(pod)
        if raises is not None:
            raise raises

    return LedgerEntry(name=name, why="w", goes_when="g", apply=apply), calls


def test_a_failing_change_does_not_stop_the_others() -> None:
    failing, _ = entry("failing", RuntimeError("no such name"))
    skipped, _ = entry("skipped", PatchSkippedError("not wanted"))
    last, calls = entry("last")
    outcomes = ledger.apply_all([failing, skipped, last], POD)
    assert [(patch.name, patch.state, patch.reason) for patch in outcomes] == [
        ("failing", "Failed", "RuntimeError: no such name"),
        ("skipped", "Skipped", "not wanted"),
        ("last", "Applied", ""),
    ]
    assert ledger.applied() == outcomes
    assert calls


def test_scheduler_placement_leaves_decoding_to_vllm() -> None:
    of_ranks, calls = entry("of ranks")
    scheduler = GuidedDecodingConfig(placement="Scheduler")
    (outcome,) = ledger.apply_all([of_ranks], msgspec.structs.replace(POD, guided_decoding=scheduler))
    assert (outcome.state, calls) == ("Skipped", [])
    assert "Scheduler" in outcome.reason
    others = {entry.name for entry in ledger.all_entries() if not entry.ranks_only}
    assert others == {"core-presence", "draft-model-passes", *(entry.name for entry in cpu.ENTRIES)}


def test_in_a_pod_changes_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, tried = entry("one")
    monkeypatch.setattr(ledger, "all_entries", lambda: [one])
    path = tmp_path / "config.json"
    path.write_bytes(config.encode(POD))
    monkeypatch.setenv(names.ENV_CONFIG, str(path))
    plugin.register()
    plugin.register()
    assert tried == [POD]


@pytest.mark.parametrize(
    ("installed", "env", "cpu"),
    [
        ("0.32.0", {}, False),
        ("0.32.0+cpu", {}, True),
        ("0.32.0+cu130", {"VLLM_TARGET_DEVICE": "cpu"}, True),
    ],
)
def test_a_build_for_cpus_is_known(
    monkeypatch: pytest.MonkeyPatch, installed: str, env: dict[str, str], *, cpu: bool
) -> None:
    monkeypatch.setattr(versions, "installed", lambda name: installed if name == "vllm" else None)
    assert versions.builds_for_cpu(env) is cpu
    assert versions.unsupported() == ""


def record() -> records.HttpRequest:
    return records.HttpRequest(
        trace_id="0" * 31 + "1", span_id="1" * 16, start_ns=1, end_ns=2, route="/", status=200
    )


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:
        yield Path(folder, "telemetry.sock")


@contextlib.contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """Listen as a sidecar that has started anew."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        yield receiver


def test_records_that_are_dropped_are_counted_and_told_to_the_next_sidecar(path: Path) -> None:
    with contextlib.closing(Telemetry(path)) as telemetry:
        for dropped in (2, 1):
            for _ in range(dropped):
                telemetry.send(record())
            with bound(path) as receiver:
                for told in (dropped, 0):
                    telemetry.send(record())
                    assert records.decode(receiver.recv(4096)).dropped == told


def test_a_sidecar_that_reads_nothing_never_blocks(path: Path) -> None:
    with contextlib.closing(Telemetry(path)) as telemetry, bound(path):
        sent = 0
        while not telemetry.dropped:
            telemetry.send(record())
            sent += 1
        assert sent > 4000, "one of them waited for the sidecar, and was lost"

"""Messages, configuration, errors, records, heartbeats and tasks keep what the contract promises."""

import asyncio
import contextlib
import os
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_contract import compatibility, config, errors, heartbeat, records, status, tasks, wire
from guided_contract.tasks import Living

CONFIG = config.PodConfig(name="a", model="/m", tokenizer="/m", served_name="a", run_dir="/r")


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_and_nothing_else(body: bytes) -> None:
    for decode in (wire.decode_client_message, wire.decode_service_message):
        with contextlib.suppress(wire.WireError):
            decode(body)


DEEP = b"\x91" * 100_000 + b"\xc0"
HELLO = b"\x85\xa4type\xa5Hello\xa4role\xa3api\xa3pid\x01\xa4boot\xa1b\xa1x"


@pytest.mark.parametrize(
    ("decode", "data", "fault"),
    [
        (wire.decode_client_message, HELLO + DEEP, wire.WireError),
        (wire.decode_service_message, b"\x82\xa4type\xa7Welcome\xa1x" + DEEP, wire.WireError),
        (records.decode, b"\x83\xa4type\xa7Digests\xa4rank\x00\xa1x" + DEEP, ValueError),
        (config.decode, b'{"name": "\xff"}', config.ConfigError),
        (config.decode, b'{"x": ' + b"[" * 100_000, config.ConfigError),
        (status.decode, b'{"x": ' + b"[" * 100_000, ValueError),
        (wire.decode_service_message, wire.frame(wire.Release(id=1))[4:], wire.WireError),
        (wire.decode_client_message, wire.frame(wire.Loaded(key="k", start_ns=-1))[4:], wire.WireError),
        (wire.decode_client_message, wire.frame(wire.Loaded(key="k", end_ns=1 << 63))[4:], wire.WireError),
        (records.decode, b"\xc1", ValueError),
    ],
)
def test_what_is_nested_without_end_no_text_or_no_time_is_an_error_of_ours(
    decode: Any, data: bytes, fault: type[Exception]
) -> None:
    with pytest.raises(fault) as raised:
        decode(data)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "more",
    [
        {"versions": {str(number): "" for number in range(480_000)}},
        {"x": [{}] * 4_000_000},
        {"boot": "é" * 2_000_000},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_frame_costs_little_more_memory_than_its_bytes(more: dict[str, Any]) -> None:
    hello = {"type": "Hello", "role": "api", "pid": 1, "boot": "b", **more}
    body = msgspec.msgpack.encode(hello)
    assert 3 << 20 < len(body) <= wire.MAX_FRAME_BYTES
    tracemalloc.start()
    try:
        with contextlib.suppress(wire.WireError):
            wire.decode_client_message(body)
        assert tracemalloc.get_traced_memory()[1] < 2 * wire.MAX_FRAME_BYTES
    finally:
        tracemalloc.stop()


def test_an_oversized_frame_is_refused_on_both_sides() -> None:
    with pytest.raises(wire.WireError):
        wire.body_length(wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1))
    with pytest.raises(wire.WireError):
        wire.frame(wire.Prepare(id=1, kind="regex", spec="a" * wire.MAX_FRAME_BYTES, timeout_s=1.0))


@pytest.mark.parametrize(
    ("data", "names_the_field"),
    [
        (b'{"name": 3}', "$.name"),
        (config.encode(CONFIG).replace(b'"tensorParallel": 1', b'"tensorParallel": 0'), "$.tensorParallel"),
        (config.encode(CONFIG).replace(b'"Rank"', b'"Ranks"'), "$.guidedDecoding.placement"),
    ],
)
def test_a_wrong_configuration_names_file_and_field(data: bytes, names_the_field: str) -> None:
    with pytest.raises(config.ConfigError, match=f"file.*{names_the_field.replace('$', '[$]')}"):
        config.decode(data, "file")


def test_no_configuration_means_not_our_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GUIDEDMODEL_CONFIG", raising=False)
    assert config.load() is None
    monkeypatch.setenv("GUIDEDMODEL_CONFIG", str(tmp_path / "absent"))
    with pytest.raises(config.ConfigError, match="absent"):
        config.load()


def test_every_code_has_an_entry_and_a_body() -> None:
    for code in errors.ErrorCode:
        body = errors.GuidedError(code, path="$.a").body()["error"]
        assert body["code"] == code.value
        assert body["param"] == "$.a"
        assert body["message"] == code.summary
        assert code.retryable == (code.http_status == 503)


@pytest.mark.parametrize("size", [0, 40])
def test_a_heartbeats_file_that_is_cut_tells_of_nobody(tmp_path: Path, size: int) -> None:
    """Mapped, it ended its readers with a signal."""
    path = tmp_path / "beats"
    writer = heartbeat.Heartbeats.create(path)
    reader = heartbeat.Heartbeats(path, writable=False)
    beat = heartbeat.Beat(pid=7, beat_ns=1, steps=3, step_ns=5, busy=2)
    writer.write(1, beat)
    os.truncate(path, size)
    assert reader.read(1).pid == 0
    writer.write(1, beat)
    assert reader.read(1) == beat
    writer.close()
    reader.close()


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        *((version, True) for version in ("0.31.0", "0.32.0+cpu", "0.33.1", "0.33.0.post1")),
        *(
            (version, False)
            for version in ("0.30.0", "0.34.0", "0.33.0rc1", "0.33.1.dev2+g1a2b", "main", None)
        ),
    ],
)
def test_releases_of_known_minors_are_supported(version: str | None, supported: bool) -> None:  # noqa: FBT001 - a table's column
    assert (compatibility.unsupported_vllm(version) == "") is supported


@pytest.fixture(autouse=True)
def _counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "failures", type(tasks.failures)())
    monkeypatch.setattr(tasks, "_DELAY_S", 0.01)


async def test_what_raises_begins_again_is_counted_and_logged_and_a_cancelled_task_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = [PermissionError("first"), RecursionError("second"), asyncio.CancelledError()]
    goes_on = asyncio.Event()

    async def work() -> None:
        if faults:
            raise faults.pop(0)
        goes_on.set()
        await asyncio.Event().wait()

    living = Living("work", work)
    living.start()
    await asyncio.wait_for(goes_on.wait(), 10)
    await living.stop()
    assert tasks.failures == {"work": 3}
    assert caplog.text.count("Traceback") >= 2

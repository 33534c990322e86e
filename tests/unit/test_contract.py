"""Messages, configuration, errors, records and heartbeats keep what the contract promises."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_contract import compatibility, config, errors, heartbeat, records, status, wire

CONFIG = config.PodConfig(name="a", model="/m", tokenizer="/m", served_name="a", run_dir="/r")

CLIENT_MESSAGES = [
    wire.Hello(
        role="rank", pid=3, boot="b", rank=1, samples=True, patches=[wire.Patch(name="p", state="Applied")]
    ),
    wire.Prepare(id=1, kind="json", spec="{}", timeout_s=2.0, traceparent="00-a-b-01"),
    wire.Release(id=1),
    wire.Loaded(key="k", error="no"),
]
SERVICE_MESSAGES = [
    wire.Welcome(),
    wire.Prepared(id=1, key="k", backend="guidance"),
    wire.Refused(id=1, code="grammar_invalid", message="m", path="$.a", retry_after_s=1.0),
    wire.Load(key="k", backend="xgrammar", artifact="k", sha256="0"),
    wire.Unload(key="k"),
]


@pytest.mark.parametrize("message", CLIENT_MESSAGES, ids=lambda m: type(m).__name__)
def test_client_messages_survive_the_wire(message: wire.ClientMessage) -> None:
    data = wire.frame(message)
    assert wire.body_length(data[:4]) == len(data) - 4
    assert wire.decode_client_message(data[4:]) == message


@pytest.mark.parametrize("message", SERVICE_MESSAGES, ids=lambda m: type(m).__name__)
def test_service_messages_survive_the_wire(message: wire.ServiceMessage) -> None:
    assert wire.decode_service_message(wire.frame(message)[4:]) == message


def test_a_client_message_is_none_of_the_services() -> None:
    with pytest.raises(wire.WireError):
        wire.decode_service_message(wire.frame(wire.Release(id=1))[4:])


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_and_nothing_else(body: bytes) -> None:
    for decode in (wire.decode_client_message, wire.decode_service_message):
        try:
            decode(body)
        except wire.WireError:
            continue


def test_an_oversized_frame_is_refused_on_both_sides() -> None:
    with pytest.raises(wire.WireError):
        wire.body_length(wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1))
    with pytest.raises(wire.WireError):
        wire.frame(wire.Prepare(id=1, kind="regex", spec="a" * wire.MAX_FRAME_BYTES, timeout_s=1.0))


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    body = msgspec.msgpack.encode({"type": "Release", "id": 4, "since": "v2"})
    assert wire.decode_client_message(body) == wire.Release(id=4)


def test_configuration_survives_its_file() -> None:
    assert config.decode(config.encode(CONFIG)) == CONFIG


@pytest.mark.parametrize(
    ("data", "names_the_field"),
    [
        (b"{", "truncated"),
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
    assert set(errors.CATALOGUE) == set(errors.ErrorCode)
    for code, entry in errors.CATALOGUE.items():
        body = errors.GuidedError(code, path="$.a").body()["error"]
        assert body["code"] == code.value
        assert body["param"] == "$.a"
        assert body["message"] == entry.summary
        assert entry.retryable == (entry.http_status == 503)


def test_records_survive_and_garbage_is_a_value_error() -> None:
    record = records.Decode(
        request_id="r", traceparent=None, rank=0, grammar_key="k", backend="xgrammar", start_ns=1, end_ns=2
    )
    assert records.decode(records.encode(record)) == record
    with pytest.raises(ValueError):
        records.decode(b"\xc1")


def test_status_survives_and_garbage_is_a_value_error() -> None:
    page = status.PodStatus(
        ready=False, reason="RanksMissing", ranks=[status.RankStatus(rank=0, state="Missing")]
    )
    assert status.decode(status.encode(page)) == page
    with pytest.raises(ValueError):
        status.decode(b'{"ready": "perhaps"}')


def test_heartbeats_are_seen_by_another_mapping(tmp_path: Path) -> None:
    path = tmp_path / "beats"
    writer = heartbeat.Heartbeats.create(path)
    reader = heartbeat.Heartbeats(path, writable=False)
    beat = heartbeat.Beat(pid=7, beat_ns=heartbeat.now_ns(), steps=3, step_ns=5, busy=2)
    writer.write(heartbeat.SLOTS - 1, beat)
    assert reader.read(heartbeat.SLOTS - 1) == beat
    assert reader.read(heartbeat.core_slot(0, 1)).pid == 0
    writer.close()
    reader.close()


@pytest.mark.parametrize(
    ("version", "supported"), [("0.32.0", True), ("0.32.0+cpu", True), ("0.31.1", False), (None, False)]
)
def test_supported_versions(version: str | None, supported: bool) -> None:  # noqa: FBT001 - a table's column
    assert (compatibility.unsupported_vllm(version) == "") is supported

"""What the others of a pod may find in its files: configuration, heartbeats; and in the sidecar's page."""

import random
import struct
import tempfile
from pathlib import Path
from typing import Final

from guided_contract import config, heartbeat, status
from guided_contract.config import LogitsProcessorConfig, PodConfig
from guided_contract.heartbeat import Beat, Heartbeats
from guided_contract.status import PodStatus, RankStatus
from guided_contract.wire import Patch
from guided_engine.launcher.stall import StallWatch
from guided_sidecar.health import heartbeats
from support.fuzz import mutation
from support.fuzz.target import Target

_NOW_NS: Final = 10**12
_WORKERS: Final = 2
# The first byte of an input tells which file it is.
_CONFIG, _BEATS, _PAGE = 0, 1, 2


def target() -> Target:
    """Return the target."""
    files = _Files()
    return Target(seeds(), _changed, files.run, files.close)


def seeds() -> list[bytes]:
    """Return each file as it is written."""
    processor = LogitsProcessorConfig(name="p", factory="a.b:C", params={"x": [1, {"y": None}]})
    pod = PodConfig(
        name="a", model="/m", tokenizer="/m", served_name="a", run_dir="/r", logits_processors=[processor]
    )
    page = PodStatus(
        ready=False,
        reason="RanksMissing",
        ranks=[RankStatus(rank=0, state="Missing")],
        patches=[Patch(name="p", state="Skipped")],
    )
    beats = b"".join(struct.pack("<6Q", *Beat(1, _NOW_NS, 7, _NOW_NS, busy)) for busy in (3, 0, 0))
    files = {_CONFIG: config.encode(pod), _BEATS: beats, _PAGE: status.encode(page)}
    return [bytes([kind]) + content for kind, content in files.items()]


def _changed(data: bytes, chance: random.Random) -> bytes:
    change = mutation.some_bytes if data[:1] == bytes([_BEATS]) else mutation.either(mutation.json_value)
    return data[:1] + change(data[1:], chance)


class _Files:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._beats = Path(self._folder.name) / "beats"

    def close(self) -> None:
        self._folder.cleanup()

    def run(self, data: bytes) -> None:
        kind, content = data[:1], data[1:]
        if kind == bytes([_CONFIG]):
            _read_config(content)
        elif kind == bytes([_BEATS]):
            self._read_beats(content)
        else:
            _read_page(content)

    def _read_beats(self, content: bytes) -> None:
        self._beats.write_bytes(content)
        state = heartbeats.read(self._beats, workers=_WORKERS, engines=1, now_ns=_NOW_NS)
        assert state.running <= (len(content) >= heartbeat.FILE_BYTES // heartbeat.SLOTS)
        reader = Heartbeats(self._beats, writable=False)
        try:
            watch = StallWatch(stall_timeout_s=1.0)
            for later_ns in (0, 10**10):
                beats = [reader.read(slot) for slot in range(1 + _WORKERS)]
                assert isinstance(watch.verdict(beats, _NOW_NS + later_ns), str)
        finally:
            reader.close()


def _read_config(content: bytes) -> None:
    try:
        pod = config.decode(content, "file")
    except config.ConfigError as error:
        if not str(error).startswith("file: "):
            raise
        return
    assert config.decode(config.encode(pod)) == pod
    assert pod.sampling_ranks > 0
    assert pod.service_socket.name


def _read_page(content: bytes) -> None:
    try:
        page = status.decode(content)
    except ValueError:
        return
    assert status.decode(status.encode(page)) == page

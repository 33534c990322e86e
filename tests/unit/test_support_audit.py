"""The tests' own reader of the API server's audit log."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.audit import Audit


def line(name: str) -> bytes:
    at = "2026-11-23T01:41:23.000000Z"
    entry = {
        "stage": "ResponseComplete",
        "user": {"username": "u"},
        "verb": "get",
        "objectRef": {"resource": "pods", "name": name},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
    }
    return json.dumps(entry).encode() + b"\n"


def test_a_line_that_is_half_written_at_the_beginning_is_not_read(tmp_path: Path) -> None:
    """It stands for a request that ended before."""
    log = tmp_path / "audit.log"
    cluster: Any = SimpleNamespace(audit_log=log)
    for there in (b"", line("a"), line("a") + line("b")[:50]):
        log.write_bytes(there)
        audit = Audit(cluster)
        rest = line("b")[50:] if not there.endswith(b"\n") and there else b""
        log.write_bytes(there + rest + line("c") + line("d")[:9])
        assert [entry.name for entry in audit.entries("u")] == ["c"]

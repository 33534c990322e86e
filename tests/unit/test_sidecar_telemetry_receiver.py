"""The datagram socket: who may write, what is kept, and what is counted of records."""

import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guided_contract import records
from guided_contract.records import DraftTokens, MatchersRestart, ProcessorFailure
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.collectors import eventually
from support.monitored import decode, request
from support.spans import MemorySpans, span_id, telemetry

RECORD = records.encode(request())


class Pod:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "telemetry.sock"
        self.spans, self.metrics = MemorySpans(), SidecarMetrics()
        self.receiver = telemetry(self.spans, self.metrics, folder)

    def send(self, datagram: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(datagram, str(self.path))

    async def counts(self, line: str) -> None:
        await eventually(lambda: f"guidedmodel_{line}" in self.metrics.render().decode())


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path is at most 107 bytes
        made = Pod(Path(folder))
        await made.receiver.start()
        yield made
        await made.receiver.stop()


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"garbage",
        b"\x80",
        os.urandom(5000),
        RECORD[:-1],
        RECORD.replace(b"b7ad6b7169203331", b"not hexadecimal!"),
        RECORD.replace(b"HttpRequest", b"HttpRequesT"),
        records.encode(decode(steps=1 << 63)),  # which no collector can hold
    ],
)
async def test_garbage_is_counted_and_the_next_record_is_a_span_and_a_count(
    pod: Pod, datagram: bytes
) -> None:
    pod.send(datagram)
    pod.send(RECORD)
    await pod.counts('requests_total{error_code="",kind="json",status="200"} 1.0')
    await pod.counts("records_invalid_total 1.0")
    assert [span_id(span) for span in pod.spans.finished] == [request().span_id]


async def test_only_the_owner_may_write(pod: Pod) -> None:
    assert stat.S_IMODE(pod.path.stat().st_mode) == 0o600
    assert [file.name for file in pod.path.parent.iterdir()] == [pod.path.name]


async def test_a_successor_takes_the_socket_over(pod: Pod) -> None:
    successor = Pod(pod.path.parent)
    await successor.receiver.start()
    pod.send(RECORD)
    await eventually(lambda: successor.spans.finished)
    await successor.receiver.stop()
    assert not pod.spans.finished


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("grammar_unknown", "unknown"),
        ("request_unknown_constraint", "unknown"),
        ("sequence_processor_failed", "unguided"),
        (None, "unguided"),
    ],
)
def test_a_refusal_of_which_nobody_knows_the_kind_is_not_unguided(code: str | None, kind: str) -> None:
    metrics = SidecarMetrics()
    metrics.take(request(400, code, kind=None))
    assert f'kind="{kind}",status="400"}} 1.0' in metrics.render().decode()


def test_a_sequence_that_fails_is_counted_once_as_the_first_of_its_ranks_tells_of_it() -> None:
    metrics = SidecarMetrics(2)
    # The third is another engine core's sequence, which may have the same name.
    for rank, *names in ((0, "ban"), (1, "ban"), (2, "ban"), (0, "ban", "dry")):
        metrics.take(ProcessorFailure(rank=rank, processors=names, code="sequence_processor_no_token"))
    assert metrics.processor_failures == {"ban": 3, "dry": 1}


def test_restarts_of_matchers_are_counted_by_rank() -> None:
    metrics = SidecarMetrics()
    for rank in (0, 1, 1):
        metrics.take(MatchersRestart(rank=rank))
    assert 'guidedmodel_matchers_restarts_total{rank="1"} 2.0' in metrics.render().decode()
    assert metrics.matchers_restarts == {0: 1, 1: 2}


def test_draft_tokens_are_the_latest_choice_every_change_and_none_where_nothing_is_chosen() -> None:
    metrics = SidecarMetrics()
    assert metrics.drafts.chosen is None
    for chosen, changes in ((3, 1), (0, 2)):
        metrics.take(DraftTokens(engine=0, chosen=chosen, changes=changes))
    assert metrics.drafts.chosen == 0
    page = metrics.render().decode()
    assert 'guidedmodel_draft_tokens{engine="0"} 0.0' in page
    assert 'guidedmodel_draft_tokens_changes_total{engine="0"} 3.0' in page
    metrics.take(DraftTokens(engine=0, chosen=None, why="a fault"))
    assert (metrics.drafts.chosen, metrics.drafts.off) == (None, "a fault")
    assert "guidedmodel_draft_tokens{" not in metrics.render().decode()
    metrics.take(DraftTokens(engine=0, chosen=1))
    assert metrics.drafts.off == ""

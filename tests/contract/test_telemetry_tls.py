"""Certificates and headers from files, against collectors that want both, over HTTP and gRPC."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port
from devtools.pki import Authority, Pair
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from guided_contract.config import TelemetryConfig
from guided_sidecar.telemetry import otlp_transport
from guided_sidecar.telemetry.otlp_transport import Reply, Transport
from support.collectors import GrpcCollector, HttpCollector, Tls

TOKEN = "Bearer s3cr3t"


@dataclass(slots=True)
class Mounts:
    """The sidecar's folders, as Secrets fill them."""

    folder: Path

    def fill(self, ca: Path, client: Pair | None, token: str = TOKEN) -> None:
        """Replace everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "headers" / "..data").mkdir(parents=True)
        (self.folder / "headers" / "Authorization").write_text(f"{token}\n")
        (self.folder / "headers" / "Team-Bin").write_text("blue")  # gRPC takes bytes for it
        shutil.copy(ca, self.folder / "ca.crt")
        if client is not None:
            shutil.copy(client.certificate, self.folder / "tls.crt")
            shutil.copy(client.key, self.folder / "tls.key")

    def config(self, endpoint: str, protocol: str, *, client: bool = True) -> TelemetryConfig:
        return TelemetryConfig(
            endpoint=endpoint,
            protocol=protocol,  # type: ignore[arg-type]  # a parameter's
            ca_file=str(self.folder / "ca.crt"),
            certificate_file=str(self.folder / "tls.crt") if client else None,
            key_file=str(self.folder / "tls.key") if client else None,
            headers_folder=str(self.folder / "headers"),
        )


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path / "mounts")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture(params=["HTTP", "GRPC"])
async def collector(
    request: pytest.FixtureRequest, authority: Authority
) -> AsyncIterator[tuple[HttpCollector | GrpcCollector, str]]:
    server = authority.issue("server", "collector", hosts=["127.0.0.1"])
    tls = Tls(server.certificate, server.key, authority.certificate)
    kind = HttpCollector if request.param == "HTTP" else GrpcCollector
    made: HttpCollector | GrpcCollector = kind(unused_port(), tls)
    await made.start()
    yield made, request.param
    await made.stop()


async def sent(to: Transport) -> Reply:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(name="x")
    return await to.send(message.SerializeToString())


def connect(config: TelemetryConfig) -> Transport:
    made = otlp_transport.connect(config)
    assert made is not None
    return made


async def test_both_sides_show_certificates_and_headers_arrive(
    collector: tuple[HttpCollector | GrpcCollector, str], mounts: Mounts, authority: Authority
) -> None:
    there, protocol = collector
    mounts.fill(authority.certificate, authority.issue("client", "sidecar"))
    out = connect(mounts.config(there.endpoint, protocol))
    assert await sent(out) == Reply("Delivered")
    assert there.kept.headers["authorization"] == TOKEN
    assert "blue" in there.kept.headers["team-bin"]
    assert "..data" not in there.kept.headers
    await out.close()


async def test_a_collector_of_another_authority_gets_nothing(
    collector: tuple[HttpCollector | GrpcCollector, str], mounts: Mounts, authority: Authority, tmp_path: Path
) -> None:
    there, protocol = collector
    mounts.fill(Authority(tmp_path / "other").certificate, authority.issue("client", "sidecar"))
    out = connect(mounts.config(there.endpoint, protocol))
    reply = await sent(out)
    assert (reply.verdict, there.kept.spans, there.kept.headers) == ("Retry", [], {})
    assert TOKEN not in reply.reason
    await out.close()


async def test_without_a_certificate_of_ours_the_collector_takes_nothing_until_there_is_one(
    collector: tuple[HttpCollector | GrpcCollector, str], mounts: Mounts, authority: Authority
) -> None:
    """Secrets are filled late, and certificates are renewed: the files are followed."""
    there, protocol = collector
    mounts.fill(authority.certificate, None)
    out = connect(mounts.config(there.endpoint, protocol))
    reply = await sent(out)
    assert reply.verdict == "Retry"
    assert "tls." in reply.reason or "No such file" in reply.reason
    mounts.fill(authority.certificate, authority.issue("client", "sidecar"), token="Bearer renewed")
    assert await sent(out) == Reply("Delivered")
    assert there.kept.headers["authorization"] == "Bearer renewed"
    await out.close()


async def test_a_header_that_can_be_none_is_no_request_and_no_word_of_it(
    collector: tuple[HttpCollector | GrpcCollector, str], mounts: Mounts, authority: Authority
) -> None:
    there, protocol = collector
    mounts.fill(authority.certificate, authority.issue("client", "sidecar"), token="s3cr3t\nX-Other: 1")
    out = connect(mounts.config(there.endpoint, protocol))
    assert await sent(out) == Reply(
        "Retry", reason="the header Authorization has a value that no header can have"
    )
    assert there.kept.headers == {}
    await out.close()

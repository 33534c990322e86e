"""A client of the grammar service and a scripted service behind it."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from guided_contract import wire
from guided_engine.admission.service_client import GrammarClient
from support.fake_service import FakeService


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: a unix socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gm-") as name:
        yield Path(name)


@pytest.fixture
def service(folder: Path) -> Iterator[FakeService]:
    with FakeService(folder / "service.sock") as service:
        yield service


@pytest.fixture
async def client(service: FakeService) -> AsyncIterator[GrammarClient]:
    client = GrammarClient(service.path, lambda _: wire.Hello(role="api", pid=1, boot="b"), service_wait_s=2)
    yield client
    await client.close()

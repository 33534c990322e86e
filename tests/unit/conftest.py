"""A client of the grammar service and a scripted service behind it, and what no test may leave behind."""

import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from guided_contract import wire
from guided_engine.admission.service_client import GrammarClient
from support.fake_service import FakeService


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A handler that a test leaves takes Ctrl-C and TERM from the whole run."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


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
    client = GrammarClient(service.path, lambda: wire.Hello(role="api", pid=1, boot="b"))
    yield client
    if client._task is not None:
        client._task.cancel()

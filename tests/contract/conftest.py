"""Fixtures that several contracts share."""

from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp.test_utils import unused_port

from guided_sidecar.grammar.compile import proof_walk
from support.collectors import Collector, GrpcCollector, HttpCollector


@pytest.fixture(params=["HTTP", "GRPC"])
async def collector(request: pytest.FixtureRequest) -> AsyncIterator[Collector]:
    """Return a collector that has started, of each protocol."""
    made: Collector = (HttpCollector if request.param == "HTTP" else GrpcCollector)(unused_port())
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(scope="module")
def unhurried() -> Iterator[None]:
    """Have no grammar refused for how long a mask takes: other tests may have the core's other half."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof_walk, "SLOW_S", 10.0)
        yield

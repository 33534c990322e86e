"""Fixtures that several contracts share."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import unused_port

from support.collectors import Collector, GrpcCollector, HttpCollector


@pytest.fixture(params=["HTTP", "GRPC"])
async def collector(request: pytest.FixtureRequest) -> AsyncIterator[Collector]:
    """Return a collector that has started, of each protocol."""
    made: Collector = (HttpCollector if request.param == "HTTP" else GrpcCollector)(unused_port())
    await made.start()
    yield made
    await made.stop()

"""What the sidecar reads of the engine's guesses, and what the page says of it."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from guided_contract.config import PodConfig, PortsConfig
from guided_contract.status import SpeculationStatus
from guided_sidecar.health.speculation import SpeculationWatch, counted
from support.collectors import eventually

PAGE = b"""\
# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 4.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 1.2e+06
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 9.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 1e+06
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7e+09
"""
CONFIG = PodConfig(name="tiny", model="/m", tokenizer="/m", served_name="tiny", run_dir="/run")


@pytest.mark.parametrize(
    ("page", "expected"), [(PAGE, (1_200_012, 1_000_009)), (b"", (0, 0)), (b"\xff\n" * 9, (0, 0))]
)
def test_counters_of_all_engines_are_summed(page: bytes, expected: tuple[int, int]) -> None:
    assert counted(page) == expected


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield port
    await runner.cleanup()


async def test_it_reads_the_engines_metrics(port: int) -> None:
    ports = PortsConfig(engine=port)
    watch = SpeculationWatch(
        msgspec.structs.replace(CONFIG, ports=ports, speculative_method="MTP"), period_s=0.01
    )
    assert watch.status == SpeculationStatus()
    watch.start()
    await eventually(lambda: watch.status == SpeculationStatus(drafted=1_200_012, accepted=1_000_009))
    await watch.stop()


async def test_without_speculation_there_is_nothing_to_say() -> None:
    watch = SpeculationWatch(CONFIG)
    watch.start()
    assert watch.status is None
    await watch.stop()

"""Fixtures that several contracts share."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from aiohttp.test_utils import unused_port

from guided_contract.config import PodConfig
from guided_sidecar.grammar.compile import proof_walk
from support.collectors import Collector, GrpcCollector, HttpCollector
from support.compositions.libraries import Compilers
from support.rank import arrival
from support.rank_apart import LETTERS, Apart
from support.worker_and_rank import WorkerAndRank


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


@pytest.fixture(scope="module")
def served() -> WorkerAndRank:
    """Return a worker and a rank of the awkward tokenizer."""
    return WorkerAndRank.of("awkward")


@pytest.fixture(scope="module")
def compilers() -> Compilers:
    """Return our path from a schema to what a rank has, of the tiny model."""
    return Compilers()


@pytest.fixture
def patched_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply our changes of vLLM's tools and parsers for one test; other tests see upstream's."""
    from vllm.parser import abstract_parser
    from vllm.parser.engine import parser_engine
    from vllm.tool_parsers import abstract_tool_parser, structural_tag_registry, utils

    from guided_engine.compat import minor, tools

    for module, name in (
        (structural_tag_registry, "resolve_tool_strictness"),
        *(
            [(utils, "_params_or_empty_object")]
            if minor.here().has_default_arguments
            else [
                (utils, "_get_tool_schema_from_name_and_params"),
                (utils, "get_json_schema_from_tools"),
                (abstract_tool_parser, "get_json_schema_from_tools"),
            ]
        ),
        (abstract_parser.DelegatingParser, "_apply_structural_tag"),
        (parser_engine, "find_tool_properties"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # restored afterwards
    monkeypatch.setattr(abstract_parser, "_xgrammar_supports", lambda _: True)  # as validators.py does
    for entry in tools.ENTRIES:
        entry.apply(PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/nowhere"))


@pytest.fixture
def begin() -> Iterator[Callable[..., Apart]]:
    """Return what begins a rank with requests of one grammar, their first token sampled."""
    made: list[Apart] = []

    def begun(*names: str, pattern: str = LETTERS) -> Apart:
        rank = Apart()
        made.append(rank)
        rank.step([arrival(name, rank.load(pattern)) for name in names])
        return rank

    yield begun
    for rank in made:
        rank.guide.close()

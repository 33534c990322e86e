"""A real sidecar in its own processes, a rank that loads grammars as vLLM's do, and an API's client."""

import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from guided_contract import wire
from guided_contract.config import GuidedDecodingConfig, PodConfig
from guided_contract.wire import Kind
from support import sidecar as sidecars
from support.engine import pod_config
from support.sidecar import Api, Sidecar

BOOT: Final = "bench"


class Mode(NamedTuple):
    """How the sidecar is set up."""

    name: str
    guided: GuidedDecodingConfig


MODES: Final = (
    Mode("Auto", GuidedDecodingConfig()),
    Mode("Auto, no proof", GuidedDecodingConfig(proof="Never")),
    Mode("XGrammar", GuidedDecodingConfig(backend="XGrammar", unsupported_keywords="Reject")),
    Mode("Guidance", GuidedDecodingConfig(backend="Guidance", unsupported_keywords="Reject")),
)


class Answer(NamedTuple):
    """What came of a prepare: the backend or the code of its refusal, and the times as in records.Sample."""

    took_s: float
    outcome: str
    is_prepared: bool
    begun_s: float


def pod(folder: Path, model: Path, mode: Mode) -> PodConfig:
    """Return a pod's configuration with everything below `folder`."""
    run_dir = folder / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    config: PodConfig = pod_config(run_dir, model, guided_decoding=mode.guided)
    return config


@contextlib.contextmanager
def started(config: PodConfig) -> Iterator[Sidecar]:
    """Run the sidecar and one rank."""
    sidecar = Sidecar.start(config)
    rank = subprocess.Popen(
        [sys.executable, "-m", "grammarbench.rank", str(Path(config.run_dir, "config.json"))]
    )
    try:
        yield sidecar
    finally:
        rank.terminate()
        rank.wait(10)
        sidecar.stop()


@contextlib.asynccontextmanager
async def connected(config: PodConfig) -> AsyncIterator[Api]:
    """Connect as an API server, when workers and rank are ready."""
    async with Api.connected(config, BOOT) as api:
        until = time.monotonic() + sidecars.START_TIMEOUT_S
        while not isinstance(await api.prepare("choice", '["ready"]'), wire.Prepared):
            if time.monotonic() > until:
                raise TimeoutError("the sidecar does not become ready")
        yield api


async def prepare(api: Api, text: str, kind: Kind = "json") -> Answer:
    """Prepare a grammar and release it."""
    start = time.perf_counter()
    number, coming = api.begin(kind, text)
    answer = await coming
    took_s = time.perf_counter() - start
    if isinstance(answer, wire.Refused):
        return Answer(took_s, answer.code, is_prepared=False, begun_s=took_s)
    api.release(number)
    begun_s = api.begun_s.pop(number) - start
    return Answer(took_s, answer.backend, is_prepared=True, begun_s=begun_s)


def proofs(config: PodConfig) -> dict[str, float]:
    """Return the sidecar's proofs so far by their result, as its metrics tell them."""
    page = httpx.get(f"http://127.0.0.1:{config.ports.sidecar}/metrics", timeout=10).raise_for_status().text
    (family,) = (
        family
        for family in text_string_to_metric_families(page)
        if family.name == "guidedmodel_grammar_proofs"
    )
    return {sample.labels["result"]: sample.value for sample in family.samples}

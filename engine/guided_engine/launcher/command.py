"""Decides how vLLM is started: its command line, its environment, and whether the plugin is in it. Pure."""

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from guided_contract import names, otel_variables
from guided_contract.combinations.row import METHODS, NGRAM_ON_CPU
from guided_contract.config import PodConfig
from guided_engine import versions
from guided_engine.cpus import Cpus

_PYTHON: Final = (sys.executable, "-m")
_SERVE: Final = (*_PYTHON, "guided_engine.compat.serve")
_COMMAND: Final = (*_PYTHON, "vllm.entrypoints.cli.main", "serve")  # the `vllm` command
WORKER_CLASS: Final = "guided_engine.worker.GuidedWorker"
_DEFAULTS: Final = {
    # Of errors that llguidance makes as it goes: half of a compile's time, where RUST_BACKTRACE is set.
    "RUST_LIB_BACKTRACE": "0",
    # Seconds for a batch of spans, for which vLLM's exit waits: the SDK's own are 10, and the launcher kills
    # after 20.
    "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
}
# How long ranks wait for one another, at first and once they have loaded (torch: 600 s by NCCL, 1,800 s
# by gloo), and API servers for the engines (vLLM: 600 s). The startup probe is to be what ends a start.
_DEADLINES: Final = ("--distributed-timeout-seconds", "--cpu-distributed-timeout-seconds")
_READY: Final = "VLLM_ENGINE_READY_TIMEOUT_S"
# Written by the operator alone, each in two words.
_MODEL: Final = "--model"
_SPECULATION: Final = "--speculative-config"
_TRACES: Final = "--otlp-traces-endpoint"
MIDDLEWARE: Final = "guided_engine.admission.middleware.AdmissionMiddleware"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to start. `unsupported` is why vLLM is left untouched, "" where the plugin is in it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    boot: str
    unsupported: str


def plan(pod: PodConfig, args: Sequence[str], env: Mapping[str, str], cpus: Cpus) -> EngineCommand:
    """Return how to start vLLM with its `args`, which are the same for all of its builds.

    On a supported vLLM the worker class and the middleware are named on the command line, so that a missing
    plugin fails loudly; also where guidedDecoding.placement is Scheduler: then both leave decoding to vLLM
    (every entry of the ledger decides by the placement), and still send heartbeats and traces.
    """
    unsupported = versions.unsupported()
    ours = () if unsupported else ("--worker-cls", WORKER_CLASS, "--middleware", MIDDLEWARE)
    boot = uuid.uuid4().hex
    start_s = str(ceil(pod.probes.startup_timeout_s))
    # Before the user's own, which win.
    deadlines = () if unsupported else tuple(word for name in _DEADLINES for word in (name, start_s))
    told = otel_variables.environment(pod, env)
    child_env = {**_DEFAULTS, _READY: start_s, **told, names.ENV_BOOT: boot, **_threads(pod, env, cpus)}
    # The model as a word of its own: another word that no option takes is then one too many for vLLM.
    given = (pod.model, *deadlines, *_for_this_build(args, env))
    # Of a vLLM that is not known no private name is.
    program = _COMMAND if unsupported and versions.has_command() else _SERVE
    argv = (*program, *given, *ours, *_traces(pod), *_group(pod, env))
    return EngineCommand(argv, child_env, boot, unsupported)


def _for_this_build(args: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return vLLM's arguments without the model, for a CPU with the speculator that runs there."""
    words = [*args]
    if _MODEL in words:
        at = words.index(_MODEL)
        del words[at : at + 2]
    if _SPECULATION in words and versions.builds_for_cpu(env):
        at = words.index(_SPECULATION) + 1
        options = json.loads(words[at])
        if options.get("method") == METHODS["NGram"]:
            words[at] = json.dumps(options | {"method": NGRAM_ON_CPU}, separators=(",", ":"))
    return words


def _traces(pod: PodConfig) -> tuple[str, ...]:
    """Return where vLLM sends its own spans: to the collector, beside the sidecar's."""
    url = otel_variables.traces_url(pod.telemetry)
    return () if url is None else (_TRACES, url)


def _group(pod: PodConfig, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return how this node's ranks find the others'."""
    if pod.nodes == 1:
        return ()
    node = env.get(names.ENV_NODE, "0")
    spread = (
        *("--nnodes", str(pod.nodes), "--node-rank", node, "--distributed-executor-backend", "mp"),
        *("--master-addr", env.get(names.ENV_LEADER, "127.0.0.1"), "--master-port", str(pod.ports.ranks)),
    )
    return spread if node == "0" else (*spread, "--headless")


def _threads(pod: PodConfig, env: Mapping[str, str], cpus: Cpus) -> dict[str, str]:
    if not cpus.limited or "OMP_NUM_THREADS" in env:
        return {}
    # Thread counts come from the host otherwise: 664 -> 120 tok/s (vLLM issue 49013).
    return {"OMP_NUM_THREADS": str(cpus.threads_per_rank(pod.workers * pod.data_parallel // pod.nodes))}

"""Decides how vLLM is started: its command line, its environment, and whether the plugin is in it. Pure."""

import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guided_contract import names
from guided_contract.config import PodConfig
from guided_engine import versions
from guided_engine.cpus import Cpus

# Not the `vllm` command: in the CPU build it looks for a distribution named vllm, and dies.
API_SERVER: Final = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
API_SERVERS: Final = (sys.executable, "-m", "guided_engine.compat.serve")
_COUNT: Final = re.compile(r"(--api[-_]server[-_]count|-asc)(=.*)?")
WORKER_CLASS: Final = "guided_engine.worker.GuidedWorker"
# Of errors that llguidance makes as it goes: half of a compile's time, where RUST_BACKTRACE is set.
_QUIET: Final = {"RUST_LIB_BACKTRACE": "0"}
MIDDLEWARE: Final = "guided_engine.admission.middleware.AdmissionMiddleware"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to start. `unsupported` is why vLLM is left untouched, "" where the plugin is in it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    boot: str
    unsupported: str


def program(args: Sequence[str], *, node: int = 0) -> tuple[str, ...]:
    """Return the program for vLLM's `args`: one API server, or several if the arguments ask for them.

    `node` is the pod's place in its replica; only node 0 has an API server that serves.
    """
    return API_SERVERS if node or any(map(_COUNT.fullmatch, args)) else API_SERVER


def plan(
    pod: PodConfig, args: Sequence[str], env: Mapping[str, str], cpus: Cpus, program: Sequence[str]
) -> EngineCommand:
    """Return how to start `program` with vLLM's `args`.

    On a supported vLLM the worker class and the middleware are named on the command line, so that a missing
    plugin fails loudly; also where guidedDecoding.placement is Scheduler: then both leave decoding to vLLM
    (every entry of the ledger decides by the placement), and still send heartbeats and traces.
    """
    unsupported = versions.unsupported()
    ours = () if unsupported else ("--worker-cls", WORKER_CLASS, "--middleware", MIDDLEWARE)
    boot = uuid.uuid4().hex
    child_env = {**_QUIET, **env, names.ENV_BOOT: boot, **_threads(pod, env, cpus)}
    return EngineCommand((*program, *args, *ours, *_group(pod, env)), child_env, boot, unsupported)


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
    ranks, chosen = pod.workers * pod.data_parallel // pod.nodes, {}
    if ranks > 1 and versions.builds_for_cpu(env):
        # Upstream's automatic choice fails where ranks outnumber NUMA nodes or physical cores.
        chosen["VLLM_CPU_OMP_THREADS_BIND"] = cpus.binding(ranks)
    if cpus.limited:
        # Thread counts come from the host otherwise: 664 -> 120 tok/s (vLLM issue 49013).
        chosen["OMP_NUM_THREADS"] = str(cpus.threads_per_rank(ranks))
    return {name: value for name, value in chosen.items() if name not in env}

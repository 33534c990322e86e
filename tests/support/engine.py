"""A real vLLM of the installed version, started as a pod's engine container starts it, on a CPU."""

import os
import signal
import sys
import typing
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import msgspec
from devtools import tinymodel
from devtools.process import Process, free_ports

from guided_contract import config, names, wire
from guided_contract.config import PodConfig, PortsConfig
from support.waiting import eventually as wait_until

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 40.0
TESTS = Path(__file__).parents[1]

# One thread a rank, bound to no CPU: vLLM binds teams of OpenMP threads to the same CPUs in every engine of a
# machine, where each team's spinning holds up the others'; with three engines at once a request for four
# tokens took up to a minute.
ONE_THREAD = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}

# Small and the same everywhere: one GiB of cache, no hub.
ENVIRONMENT = {
    **ONE_THREAD,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONPATH": str(TESTS),
}
ARGS = (
    "--enforce-eager",
    "--max-model-len",
    "512",
    "--max-num-seqs",
    "8",
    "--dtype",
    "float32",
    "--seed",
    "0",
)


def pod_config(run_dir: Path, model: Path | str = "", **fields: object) -> PodConfig:
    """Return the configuration of a pod that lives in `run_dir` and serves the tiny model on free ports."""
    engine, launcher, sidecar = free_ports(3)
    ports = PortsConfig(engine=engine, launcher=launcher, sidecar=sidecar)
    model = str(model or tinymodel.models() / "tiny")
    pod = PodConfig(
        name="tests", model=model, tokenizer=model, served_name="tiny", run_dir=str(run_dir), ports=ports
    )
    return msgspec.structs.replace(pod, bind_host="127.0.0.1", **fields)


def structured_outputs(**given: object) -> SimpleNamespace:
    """Return what vLLM's StructuredOutputsParams looks like to us, for tests without vLLM."""
    return SimpleNamespace(**{**dict.fromkeys(typing.get_args(wire.Kind)), **given})


def write_config(pod: PodConfig) -> Path:
    path = Path(pod.run_dir, "config.json")
    path.write_bytes(config.encode(pod))
    return path


class Engine:
    """The launcher and what it starts."""

    def __init__(self, pod: PodConfig, process: Process) -> None:
        self.pod = pod
        self.process = process
        self.url = f"http://127.0.0.1:{pod.ports.engine}"

    @classmethod
    def start(
        cls, pod: PodConfig, args: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> Self:
        """Start the launcher with vLLM's arguments for the tiny model; does not wait."""
        command = [
            *(sys.executable, "-m", "guided_engine.launcher", "--", *ARGS),
            *("--model", pod.model, "--served-model-name", pod.served_name),
            *("--host", "127.0.0.1", "--port", str(pod.ports.engine)),
            *("--tensor-parallel-size", str(pod.tensor_parallel), *args),
        ]
        env = {**os.environ, **ENVIRONMENT, names.ENV_CONFIG: str(write_config(pod)), **(environment or {})}
        return cls(pod, Process.start("engine", command, Path(pod.run_dir, "engine.log"), environment=env))

    def wait_started(self) -> None:
        self.process.wait_ready(lambda: self.probe("/startupz")[0] == 200, START_TIMEOUT_S)

    def probe(self, path: str) -> tuple[int, str]:
        """Return status and text of one of the launcher's probes; status 0 if nobody answers."""
        url = f"http://127.0.0.1:{self.pod.ports.launcher}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def stop(self) -> None:
        """End it in order; longer than the launcher itself waits before it kills."""
        if self.process.is_running():
            os.kill(self.process.pid, signal.SIGTERM)
        try:
            wait_until(lambda: not self.process.is_running(), STOP_TIMEOUT_S)
        finally:
            self.process.stop()

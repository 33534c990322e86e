"""Cells of the engine matrix as processes: how each is started, on which CPUs, and ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from guided_contract import config as pod_config
from guided_contract import names
from guided_contract.config import PodConfig
from support.engine import ENVIRONMENT, ONE_THREAD

TESTS = Path(__file__).parents[1]
CELL_TIMEOUT_S = 840  # below a test's 900; on a new machine others are still building
Runner = Literal["V1", "V2"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine process does.

    `pod` None: upstream.
    """

    answer: str
    model: str
    speculation: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    on_gpu: bool = False
    adapter: str | None = None
    pod: PodConfig | None = None


def start(job: Job, runner: Runner, folder: Path, program: str = "support.matrix_cell") -> dict[str, Any]:
    """Run one engine to its end and return its answers.

    Raises
    ------
    AssertionError
        It failed or took too long; the message ends with its log.
    """
    description = folder / "job.json"
    description.write_bytes(msgspec.json.encode(job))
    environment = cell_environment(job, runner)
    if job.pod is None:
        # The engine core in the cell's own process, where its grammar backend can be changed.
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    else:
        (folder / "grammars").mkdir(mode=0o700, exist_ok=True)
        config = folder / "config.json"
        config.write_bytes(pod_config.encode(job.pod))
        environment[names.ENV_CONFIG] = str(config)
    log = folder / "log.txt"
    command = [sys.executable, "-m", program, str(description)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            status = process.wait(CELL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    assert status == 0, f"the engine {folder.name} ended with {status}:\n{log.read_text()[-6000:]}"
    answers: dict[str, Any] = json.loads(Path(job.answer).read_text())
    return answers


def cell_environment(job: Job, runner: Runner) -> dict[str, str]:
    paths: tuple[Path, ...] = (TESTS, TESTS.parent / "tools")
    environment = {
        **{name: value for name, value in ENVIRONMENT.items() if not (job.on_gpu and name in ONE_THREAD)},
        **{k: v for k, v in os.environ.items() if not k.startswith("GUIDEDMODEL_CONFIG")},
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # the cell looks into its own ranks
        "VLLM_USE_V2_MODEL_RUNNER": "1" if runner == "V2" else "0",
    }
    if runner == "V2" and not job.on_gpu:
        paths = (*paths, TESTS / "support" / "v2cpu")
        environment["TORCHDYNAMO_DISABLE"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    return environment


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of an engine's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

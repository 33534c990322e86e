"""Engine programs as the driver sees them: started together, asked one at a time, ended for certain."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from guided_contract import names
from rankbench import on_gpu, plugin
from rankbench.protocol import EngineSpec, Failed, Run, Served

_START_TIMEOUT_S: Final = 420.0
_RUN_TIMEOUT_S: Final = 1200.0


class EngineError(Exception):
    """An engine program ended or does not answer; the message ends with its log."""


class Program:
    """One engine program.

    Parameters
    ----------
    spec
        What it is to be; its folder is made here.
    logs
        Folder for its log, which stays.
    """

    def __init__(self, spec: EngineSpec, logs: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
        self.spec = msgspec.structs.replace(spec, folder=str(folder))
        for path, content in plugin.entry_point().items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(content)
        (folder / "spec.json").write_bytes(msgspec.json.encode(self.spec))
        self._log = logs / f"{spec.name}-k{spec.drafts}-tp{spec.tensor_parallel}.log"
        readable, writable = os.pipe()
        command = [sys.executable, "-m", "rankbench.engine", str(folder / "spec.json"), str(writable)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(self.spec),
                pass_fds=[writable],
                start_new_session=True,
            )
        os.close(writable)
        self._replies = os.fdopen(readable, "rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    def wait_ready(self) -> None:
        """Wait until it can serve."""
        self._reply(str, _START_TIMEOUT_S)

    def serve(self, run: Run) -> Served | Failed:
        """Have it serve one batch."""
        if self._process.stdin is None:
            raise EngineError("it has no standard input")
        self._process.stdin.write(msgspec.json.encode(run) + b"\n")
        self._process.stdin.flush()
        answer: Served | Failed = self._reply(Served | Failed, _RUN_TIMEOUT_S)
        return answer

    def end(self) -> None:
        """End it and all its processes."""
        self._kill()
        self._process.wait()
        self._replies.close()
        shutil.rmtree(self.spec.folder, ignore_errors=True)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _reply(self, kind: Any, timeout_s: float) -> Any:
        # The read ends when the program does, or is killed at the deadline.
        watchdog = threading.Timer(timeout_s, self._kill)
        watchdog.start()
        line = self._replies.readline()
        watchdog.cancel()
        if not line:
            raise EngineError(f"the engine {self.spec.name} ended or took too long: see {self._log}")
        return msgspec.json.decode(line, type=kind)


def environment(spec: EngineSpec) -> dict[str, str]:
    """Return what an engine program needs in its environment."""
    is_virtual = spec.device == "virtual"
    known = {k: v for k, v in os.environ.items() if k != names.ENV_CONFIG}
    plugins = [plugin.NAME] * is_virtual + ["guidedmodel"] * spec.ours
    known |= {
        "VLLM_PLUGINS": ",".join(plugins),
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if not is_virtual:
        return known | on_gpu.environment()
    repository = Path(__file__).parents[2]
    # vLLM wants a Triton before it takes Model Runner V2; none of its kernels runs here.
    interpreter = repository / "tests" / "support" / "v2cpu"
    return known | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_CI_ENV": "1",
        # A tiny model gains nothing by more, and threads that spin for each other make a busy machine crawl.
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        plugin.ENV_FOLDER: spec.folder,
        "PYTHONPATH": os.pathsep.join(
            map(str, [spec.folder, repository / "benchmarks", repository / "tools", interpreter])
        ),
    }

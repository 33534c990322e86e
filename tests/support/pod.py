"""A whole pod on this machine: `guidedmodel run` as a child, found and ended by its mark."""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import yaml
from devtools import deploy, tinymodel

from guided_contract import config, names
from guided_contract.config import PodConfig, PortsConfig
from guided_operator.cli.local.site import ENV_HOME
from support.sidecar import Sidecar, serves
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
MARK = "GUIDEDMODEL_TEST_MARK"
START_TIMEOUT_S = 500.0
STOP_TIMEOUT_S = 60.0
V2 = {
    "PYTHONPATH": str(ROOT / "tests/support/v2cpu"),
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "TORCHDYNAMO_DISABLE": "1",
}


def sample(**spec: Any) -> dict[str, Any]:
    """Return the sample, for a model that does not think, with some fields of its spec replaced."""
    manifest = deploy.sample()
    args = manifest["spec"]["engine"]["args"]
    args.remove("--reasoning-parser=qwen3")
    manifest["spec"] |= spec
    return manifest


class Pod:
    """`guidedmodel run` and everything below it. `lines` is what it said so far."""

    def __init__(self, child: subprocess.Popen[str], mark: str, home: Path) -> None:
        self.child = child
        self._home = home
        self.lines: list[str] = []
        self._mark = mark
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def launch(  # noqa: PLR0913 - what tests choose
        cls,
        manifest: Mapping[str, Any],
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        v2: bool = False,
        models: Path | None = None,
        configured: Mapping[str, Any] | None = None,
    ) -> Self:
        """Start the command with a manifest on stdin; does not wait.

        `v2`: with Model Runner V2. `models`: what stands for the claim of that name, if not both tiny models.
        `configured`: merged into the pod's configuration, for what no field of the resource says.
        """
        mark = uuid.uuid4().hex
        home = Path(tempfile.mkdtemp(prefix="pod-home-"))  # no grammar that an earlier pod has compiled
        program = ["-m", "guided_operator.cli"]
        if configured:
            program = ["-P", str(Path(__file__).with_name("run_configured.py")), json.dumps(configured)]
        command = [sys.executable, *program, "run", "-f", "-"]
        child = subprocess.Popen(
            [*command, "--volume", f"models={models or tinymodel.models()}", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                ENV_HOME: str(home),
                **(V2 if v2 else {}),
                **(env or {}),
                MARK: mark,
            },
        )
        assert child.stdin
        with child.stdin as stdin:
            yaml.safe_dump(dict(manifest), stdin)
        return cls(child, mark, home)

    @functools.cached_property
    def url(self) -> str:
        """Base URL of the OpenAI API, once ready."""
        found = self.find(r"^serving \S+ at (http://\S+)/v1 ")
        assert found, self.said()
        return found[1]

    @property
    def config(self) -> PodConfig:
        """The pod's configuration."""
        return config.decode(self.config_path.read_bytes())

    @property
    def config_path(self) -> Path:
        """Where the pod's configuration is, by its processes' environment."""
        for pid in self.processes():
            for variable in _read(pid, "environ").split(b"\0"):
                key, _, path = variable.decode(errors="replace").partition("=")
                if key == names.ENV_CONFIG:
                    return Path(path)
        raise AssertionError("no process of the pod has a configuration")

    @functools.cached_property
    def ports(self) -> PortsConfig:
        """The pod's ports; they stay."""
        return self.config.ports

    @property
    def sidecar(self) -> Sidecar:
        """The sidecar's processes."""
        for pid in self.processes():
            command = _read(pid, "cmdline")
            is_sidecars = command.endswith(b"\0-m\0guided_sidecar\0") and b"guard.py" not in command
            if is_sidecars and not serves(pid):
                return Sidecar(self.config, SimpleNamespace(pid=pid))
        raise AssertionError("the pod has no sidecar")

    def containers(self) -> set[int]:
        """Return the guards, one for each container's life."""
        return {pid for pid in self.processes() if b"guard.py" in _read(pid, "cmdline")}

    def find(self, pattern: str) -> re.Match[str] | None:
        """Return the first match of a pattern in what was said."""
        return next((found for line in list(self.lines) if (found := re.search(pattern, line))), None)

    def trace(self, trace_id: str) -> list[str]:
        """Return the lines of a trace's tree, its root first; [] until all are printed."""
        lines = list(self.lines)
        begin = f"trace {trace_id}"
        if begin not in lines or "" not in lines[lines.index(begin) :]:
            return []
        first = lines.index(begin) + 1
        return lines[first : lines.index("", first)]

    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_ready(self) -> None:
        self.wait(lambda: self.find("^serving "), START_TIMEOUT_S)

    def wait(self, holds: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Wait until a condition holds; AssertionError at the deadline, or when the command ends before."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            ended = self.child.poll()
            assert ended is None, f"ended with {ended}:\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s:\n{self.said()}"
            time.sleep(0.05)

    def processes(self) -> set[int]:
        """Return every process that the command started, the command included, wherever it went."""
        wanted = f"{MARK}={self._mark}".encode()
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return {pid for pid in pids if wanted in _read(pid, "environ").split(b"\0")}

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit status."""
        self.child.send_signal(signal.SIGINT)
        return self.ended(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the command itself, and nothing else."""
        self.child.kill()
        self.ended(STOP_TIMEOUT_S)

    def ended(self, timeout_s: float) -> int:
        """Wait for the command's own end; return its exit status."""
        try:
            return self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended within {timeout_s:.0f} s:\n{self.said()}") from None
        finally:
            self.child.kill()  # does nothing where it has ended
            self.child.wait()
            self._reader.join(10)
            shutil.rmtree(self._home, ignore_errors=True)

    def stop(self) -> None:
        """End everything, and see that nothing is left."""
        if self.child.poll() is None:
            self.interrupt()
        assert gone(self), f"left behind: {self.processes()}"

    def _read(self) -> None:
        assert self.child.stdout
        with self.child.stdout as out:
            for line in out:
                self.lines.append(line.rstrip("\n"))


def start_pod(manifest: Mapping[str, Any], **chosen: Any) -> Pod:
    """Start a pod from a GuidedModel, as `launch` does, and wait until it is ready. Call `stop`."""
    pod = Pod.launch(manifest, **chosen)
    try:
        pod.wait_ready()
    except BaseException:
        pod.stop()
        raise
    return pod


def gone(pod: Pod, timeout_s: float = 20.0) -> bool:
    """Return whether no process of the pod is left, soon."""
    with contextlib.suppress(AssertionError):
        return eventually(lambda: not pod.processes(), timeout_s, poll_s=0.05)
    return False


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""

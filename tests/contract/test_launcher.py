"""The launcher with real child processes: what it starts and answers, and that it leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools.process import Process

from guided_contract import names, wire
from guided_contract.config import DrainConfig, PodConfig, ProbesConfig
from guided_contract.heartbeat import Beat, Heartbeats, now_ns
from guided_engine.launcher.stall import is_alive
from support import fake_vllm
from support.engine import Engine, pod_config, wait_until, write_config
from support.fake_service import FakeService

LAUNCHER = [sys.executable, "-m", "guided_engine.launcher"]
SUPPORTED = "0.32.0"
DEADLINES = ["--distributed-timeout-seconds", "1800", "--cpu-distributed-timeout-seconds", "1800"]
OURS = ["--worker-cls", "guided_engine.worker.GuidedWorker"]
OURS += ["--middleware", "guided_engine.admission.middleware.AdmissionMiddleware"]


class Launched(Engine):
    """The real launcher; what it starts is the fake vLLM."""

    def __init__(self, pod: PodConfig, process: Process, out: Path) -> None:
        super().__init__(pod, process)
        self._out = out

    @property
    def said(self) -> dict[str, Any]:
        self.process.wait_ready(self._out.exists, 20)
        return fake_vllm.said(self._out)

    @property
    def log(self) -> str:
        return self.process.log.read_text()

    @property
    def exit_code(self) -> int | None:
        return self.process._child.poll()


Launch = Callable[..., Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start the launcher below which vLLM is a small program; end it, and fail if a process of it is left."""
    started: list[Launched] = []
    with tempfile.TemporaryDirectory(prefix="gm-") as run_dir:

        def start(*args: str, version: str = SUPPORTED, **fields: Any) -> Launched:
            pod = pod_config(Path(run_dir), "model", **fields)
            out = tmp_path / "said.json"
            folder = fake_vllm.make(tmp_path / "python", version)
            environment = {
                **os.environ,
                names.ENV_CONFIG: str(write_config(pod)),
                "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))),
                "FAKE_VLLM_OUT": str(out),
            }
            command = [*LAUNCHER, "--", *args, "--port", str(pod.ports.engine)]
            process = Process.start("launcher", command, tmp_path / "log", environment=environment)
            started.append(Launched(pod, process, out))
            return started[-1]

        yield start
        for one in started:
            one.stop()


def test_supported_version_gets_the_plugin(launch: Launch) -> None:
    launched = launch("--model", "m", "--plugins")
    said = launched.said
    given = "--plugins", "--port", str(launched.pod.ports.engine)
    assert said["argv"] == [launched.pod.model, *DEADLINES, *given, *OURS]
    assert len(said["env"][names.ENV_BOOT]) == 32
    assert said["pgid"] == said["pids"][0] != os.getpgid(launched.process.pid)
    assert "admission" in said["patches"]
    assert launched.pod.heartbeats_file.exists()
    wait_until(lambda: launched.probe("/startupz")[0] == 200)
    assert launched.probe("/livez") == (200, "live\n")
    with FakeService(launched.pod.service_socket) as service:
        hello = service.wait_for(wire.Hello)
        assert (hello.role, hello.pid, hello.unsupported) == ("launcher", launched.process.pid, "")


def test_unsupported_version_is_left_untouched(launch: Launch) -> None:
    launched = launch("--model", "m", "--plugins", version="0.30.0")
    said = launched.said
    given = "--plugins", "--port", str(launched.pod.ports.engine)
    assert said["argv"] == ["serve", launched.pod.model, *given]
    assert said["patches"] == []
    assert "vLLM 0.30.0 is not supported" in launched.log
    with FakeService(launched.pod.service_socket) as service:
        hello = service.wait_for(wire.Hello)
    assert hello.role == "launcher"
    assert "0.30.0" in hello.unsupported
    assert hello.boot == said["env"][names.ENV_BOOT]
    wait_until(lambda: launched.probe("/startupz")[0] == 200)


def test_why_a_rank_did_not_start_is_said_last_and_once(launch: Launch) -> None:
    launched = launch("--sick")
    assert launched.said
    launched.pod.failure_file.write_text("ValueError: M does not support x")
    os.kill(launched.said["pids"][0], signal.SIGKILL)
    wait_until(lambda: launched.exit_code is not None)
    assert launched.log.rstrip().endswith("the engine did not start: ValueError: M does not support x")
    again = launch()
    wait_until(lambda: not again.pod.failure_file.exists())


@pytest.mark.parametrize(
    ("options", "struck", "number", "code"),
    [
        (["--die", "3"], None, 0, 3),
        (["--die", "0"], None, 0, 1),
        (["--exit", "7"], "launcher", signal.SIGTERM, 7),
        (["--deaf"], "API server", signal.SIGKILL, 128 + signal.SIGKILL),  # deaf to TERM
        (["--setsid"], "API server", signal.SIGKILL, 128 + signal.SIGKILL),  # its session is its own
    ],
)
def test_however_it_ends_nobody_is_left_and_the_code_is_the_childs(
    launch: Launch, options: list[str], struck: str | None, number: int, code: int
) -> None:
    launched = launch(*options)
    pids = launched.said["pids"]
    if struck:
        assert all(map(is_alive, pids))
        os.kill(launched.process.pid if struck == "launcher" else pids[0], number)
    wait_until(lambda: not launched.process.is_running())
    assert launched.exit_code == code
    assert not any(map(is_alive, pids))


def test_killed_launcher_takes_the_api_server_along(launch: Launch) -> None:
    launched = launch()
    pids = launched.said["pids"]
    launched.process.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


DRAIN = DrainConfig(timeout_s=30, endpoint_lag_s=1)


def test_told_to_stop_it_waits_for_what_was_begun(launch: Launch) -> None:
    launched = launch("--exit", "7", drain=DRAIN)
    pids = launched.said["pids"]
    wait_until(lambda: launched.probe("/startupz")[0] == 200)
    with socket.create_connection(("127.0.0.1", launched.pod.ports.engine)):
        os.kill(launched.process.pid, signal.SIGTERM)
        wait_until(launched.pod.draining_file.exists)
        time.sleep(DRAIN.endpoint_lag_s + 1)
        assert all(map(is_alive, pids))
        assert launched.probe("/livez")[0] == 200
    wait_until(lambda: not launched.process.is_running())
    assert launched.exit_code == 7
    assert "drained after" in launched.log


@pytest.mark.parametrize("options", [["--sick"], []], ids=["not started", "dead"])
def test_who_answers_nobody_is_not_waited_for(launch: Launch, options: list[str]) -> None:
    launched = launch(*options, drain=DRAIN)
    pids = launched.said["pids"]
    if options:
        assert launched.probe("/startupz")[0] == 503
    else:
        wait_until(lambda: launched.probe("/startupz")[0] == 200)
        beats = Heartbeats(launched.pod.heartbeats_file, writable=True)
        beats.write(0, Beat(2**22 + 1, now_ns(), 5, 1, 0))  # a pid that no process has
        beats.close()
        wait_until(lambda: launched.probe("/livez")[0] == 503)
    os.kill(launched.process.pid, signal.SIGTERM)
    wait_until(lambda: not launched.process.is_running())
    assert not launched.pod.draining_file.exists()
    assert not any(map(is_alive, pids))


def test_hanging_api_server_is_not_live(launch: Launch) -> None:
    launched = launch(probes=ProbesConfig(stall_timeout_s=3))
    wait_until(lambda: launched.probe("/startupz")[0] == 200)
    assert launched.probe("/livez")[0] == 200
    os.kill(launched.said["pids"][0], signal.SIGSTOP)
    try:
        wait_until(lambda: launched.probe("/livez")[0] == 503)
        assert "/health has not answered" in launched.probe("/livez")[1]
        assert launched.probe("/startupz")[0] == 200
    finally:
        os.kill(launched.said["pids"][0], signal.SIGCONT)


@pytest.mark.parametrize(("config", "message"), [(None, "GUIDEDMODEL_CONFIG"), ('{"name": 1}', "name")])
def test_bad_start_is_refused(tmp_path: Path, config: str | None, message: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != names.ENV_CONFIG}
    if config is not None:
        path = write_config(pod_config(tmp_path, "m"))
        path.write_text(config)
        env[names.ENV_CONFIG] = str(path)
    command = [*LAUNCHER, "--"]
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr

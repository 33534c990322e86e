"""Runs a pod template's containers as processes of this machine, in a kubelet's order and by its probes."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from guided_operator.builders.literal import passed_on

READY_TIMEOUT_S: Final = 300.0  # from the engine's start-up to readiness: grammar workers, the guided probe
GRACE_S: Final = 30.0  # after SIGTERM; the launcher itself kills vLLM after 20 s
_POLL_S: Final = 0.2
_PROGRESS_S: Final = 10.0
_LOG_LINES: Final = 30
_GUARD: Final = Path(__file__).with_name("guard.py")


class PodError(Exception):
    """A pod cannot be started, or a container ended; `log` is the end of its log."""

    def __init__(self, message: str, log: str = "") -> None:
        self.log = log
        super().__init__(message)


class StoppedError(Exception):
    """The caller asked to stop while the pod was starting."""


class Probe(NamedTuple):
    """An HTTP GET that answers 2xx or 3xx when all is well; so many `failures` in a row count as failed."""

    path: str
    port: int
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, probe: Any) -> Self | None:
        """Return a container's probe (a builder's V1Probe, or None)."""
        if probe is None:
            return None
        asked = probe.http_get
        return cls(
            asked.path, asked.port, probe.period_seconds, probe.timeout_seconds, probe.failure_threshold
        )

    def ask(self) -> str:
        """Return "" if the probe passes, else why not, in one line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            response = connection.getresponse()
            text = response.read(4096).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return f"{self.path}: {error or type(error).__name__}"
        finally:
            connection.close()
        if 200 <= response.status < 400:
            return ""
        return f"{self.path}: {response.status} {' '.join(text.split())[:200]}".strip()


class Container(NamedTuple):
    """What is run of a container."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    startup: Probe | None = None
    readiness: Probe | None = None


def containers(template: Any) -> list[Container]:
    """Return what a pod template (V1PodTemplateSpec) runs for its life, in the order of start.

    Init containers that end are left out: they copy the plugin, which is installed here.

    Raises
    ------
    PodError
        A variable comes from a Secret, and this process has none of that name.
    """
    sidecars = [one for one in template.spec.init_containers or () if one.restart_policy == "Always"]
    return [
        Container(
            one.name,
            [passed_on(word) for word in (*one.command, *(one.args or ()))],
            {variable.name: _value(variable) for variable in one.env or ()},
            Probe.of(one.startup_probe),
            Probe.of(one.readiness_probe),
        )
        for one in (*sidecars, *template.spec.containers)
    ]


def _value(variable: Any) -> str:
    if variable.value_from is None:
        return passed_on(variable.value or "")
    if variable.name not in os.environ:
        raise PodError(f"{variable.name} comes from a Secret in a cluster: here, set it in the environment")
    return os.environ[variable.name]


def guarded(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command below its guard (see guard.py), its output in a log.

    TERM ends it in order, HUP kills it at once; its exit status is the command's (128 + N: by signal N), and
    nothing of it runs then. When the thread that started it ends, the guard kills it and removes the log's
    folder. `environment` None: our own.
    """
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - the command of the pod's own plan
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(log.parent), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a Ctrl-C of the terminal is ours to pass on
        )


class LocalPod:
    """A pod's processes: start, check, stop.

    The containers of `plan` start in this order; `folder`, removed if this process dies, has their logs.
    `progress` is told how it goes. `heard` gets an item for each request to stop: the first ends a start, the
    second the time that processes have for an end in order. `environment` stands on top of this process's own
    and below a container's.
    """

    def __init__(
        self,
        plan: Sequence[Container],
        folder: Path,
        progress: Callable[[str], None],
        *,
        heard: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._heard = heard
        self._environment = {**os.environ, **(environment or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each started container's guard, by container; all others are below these."""
        return {name: process.pid for name, process in self._processes.items()}

    def log(self, container: str) -> Path:
        """Return the file with a container's output."""
        return self._folder / f"{container}.log"

    def start(self) -> None:
        """Start every container and wait until all are ready.

        Raises
        ------
        PodError
            A container ended, or did not pass a probe in time. Call `stop` also then.
        StoppedError
            It was asked to stop. Call `stop` also then.
        """
        for one in self._plan:
            self._progress(f"{one.name}: starting")
            environment = {**self._environment, **one.environment}
            self._processes[one.name] = guarded(one.command, self.log(one.name), environment)
            if one.startup is not None:
                self._wait(one.name, "started", one.startup, one.startup.period_s * one.startup.failures)
        for one in self._plan:
            if one.readiness is not None:
                self._wait(one.name, "ready", one.readiness, READY_TIMEOUT_S)

    def _wait(self, name: str, state: str, probe: Probe, timeout_s: float) -> None:
        """Return when the probe passes. How a start goes, the log says; what is not ready says so itself."""
        started = told = time.monotonic()
        while reason := probe.ask():
            self.check()
            if self._heard:
                raise StoppedError
            now = time.monotonic()
            if now - started > timeout_s:
                raise PodError(
                    f"{name} is not {state} after {now - started:.0f} s: {reason}", self._end(name)
                )
            if now - told > _PROGRESS_S:
                told = now
                news = self._end(name, 1).strip()[:120] if state == "started" else reason
                self._progress(f"{name}: not {state} yet, {now - started:.0f} s  {news}".rstrip())
            time.sleep(_POLL_S)
        self.check()
        self._progress(f"{name}: {state} after {time.monotonic() - started:.1f} s")

    def check(self) -> None:
        """Look whether all started containers run.

        Raises
        ------
        PodError
            One ended.
        """
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise PodError(f"{name} ended with status {status}", self._end(name))

    def stop(self) -> None:
        """End everything: engine first, then the sidecar, each by SIGTERM and, past its time, by SIGKILL.

        Nothing of the pod runs when this returns.
        """
        for process in reversed(self._processes.values()):
            process.terminate()
            deadline = time.monotonic() + GRACE_S
            while process.poll() is None and time.monotonic() < deadline and len(self._heard) < 2:
                time.sleep(_POLL_S)
            process.send_signal(signal.SIGHUP)  # does nothing where it has ended
            process.wait()

    def _end(self, container: str, lines: int = _LOG_LINES) -> str:
        return "\n".join(self.log(container).read_text(errors="replace").splitlines()[-lines:])

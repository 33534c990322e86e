"""Runs a pod template's containers as processes of this machine, in a kubelet's order and by its probes."""

import http.client
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from guided_operator.builders.objects import Object
from guided_operator.builders.pod import passed_on
from guided_operator.cli.local.process import Process, tail

READY_TIMEOUT_S: Final = 300.0  # from the engine's start-up to readiness: grammar workers, the guided probe
GRACE_S: Final = 30.0  # after SIGTERM; the launcher itself kills vLLM after 20 s
_POLL_S: Final = 0.2
_PROGRESS_S: Final = 10.0


class PodError(Exception):
    """A container did not start, or ended; `log` is the end of its log."""

    def __init__(self, message: str, log: str = "") -> None:
        self.log = log
        super().__init__(message)


class StoppedError(Exception):
    """The caller asked to stop while the pod was starting."""


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET that answers 2xx or 3xx when all is well; so many `failures` in a row count as failed."""

    path: str
    port: int
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, probe: Object | None) -> Self | None:
        """Return a container's probe, as the operator writes each; None where it has none."""
        if probe is None:
            return None
        return cls(
            path=probe["httpGet"]["path"],
            port=probe["httpGet"]["port"],
            period_s=probe["periodSeconds"],
            timeout_s=probe["timeoutSeconds"],
            failures=probe["failureThreshold"],
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


@dataclass(frozen=True, slots=True)
class Container:
    """What is run of a container."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    startup: Probe | None = None
    readiness: Probe | None = None

    @classmethod
    def of(cls, container: Object) -> Self:
        """Return a container's part that matters here.

        Raises
        ------
        PodError
            A variable comes from a Secret, and this process has none of that name.
        """
        return cls(
            name=container["name"],
            command=tuple(map(passed_on, (*container["command"], *container.get("args", ())))),
            environment=dict(map(_variable, container["env"])),
            startup=Probe.of(container.get("startupProbe")),
            readiness=Probe.of(container.get("readinessProbe")),
        )


def _variable(variable: Object) -> tuple[str, str]:
    name = variable["name"]
    if "value" in variable:
        return name, passed_on(variable["value"])
    if name not in os.environ:
        raise PodError(f"{name} comes from a Secret in a cluster: here, set it in the environment")
    return name, os.environ[name]


def containers(template: Object) -> list[Container]:
    """Return what a pod template runs for its life, in the order of start.

    Init containers that end are left out: they copy the plugin, which is installed here.
    """
    spec = template["spec"]
    sidecars = [one for one in spec["initContainers"] if one.get("restartPolicy") == "Always"]
    return [Container.of(one) for one in (*sidecars, *spec["containers"])]


class LocalPod:
    """A pod's processes: start, check, stop.

    The containers of `plan` start in this order; `folder`, removed if this process dies, has their logs.
    `environment` stands on top of this process's own and below a container's.
    """

    def __init__(
        self, plan: Sequence[Container], folder: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._processes: list[Process] = []

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each started container's guard, by container; all others are below these."""
        return {process.name: process.pid for process in self._processes}

    def log(self, container: str) -> Path:
        """Return the file with a container's output."""
        return self._folder / f"{container}.log"

    def start(
        self, progress: Callable[[str], None], *, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Start every container and wait until all are ready.

        Raises
        ------
        PodError
            A container ended, or did not pass a probe in time. Call `stop` also then.
        StoppedError
            `is_stopping` became true. Call `stop` also then.
        """
        for container in self._plan:
            progress(f"{container.name}: starting")
            self._processes.append(
                Process.start(
                    container.name,
                    container.command,
                    environment={**self._environment, **container.environment},
                    log=self.log(container.name),
                    folder=self._folder,
                )
            )
            if (probe := container.startup) is not None:
                self._wait(
                    container.name, "started", probe, probe.period_s * probe.failures, progress, is_stopping
                )
        for container in self._plan:
            if container.readiness is not None:
                self._wait(
                    container.name, "ready", container.readiness, READY_TIMEOUT_S, progress, is_stopping
                )

    def _wait(  # noqa: PLR0913, PLR0917 - what is waited for, and who is told
        self,
        name: str,
        state: str,
        probe: Probe,
        timeout_s: float,
        progress: Callable[[str], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        """Return when the probe passes. How a start goes, the log says; what is not ready says so itself."""
        started = told = time.monotonic()
        while reason := probe.ask():
            self.check()
            if is_stopping():
                raise StoppedError
            now = time.monotonic()
            if now - started > timeout_s:
                raise PodError(
                    f"{name} is not {state} after {now - started:.0f} s: {reason}", tail(self.log(name))
                )
            if now - told > _PROGRESS_S:
                told = now
                news = tail(self.log(name), 1).strip()[:120] if state == "started" else reason
                progress(f"{name}: not {state} yet, {now - started:.0f} s  {news}".rstrip())
            time.sleep(_POLL_S)
        self.check()
        progress(f"{name}: {state} after {time.monotonic() - started:.1f} s")

    def check(self) -> None:
        """Look whether all started containers run.

        Raises
        ------
        PodError
            One ended.
        """
        for process in self._processes:
            status = process.exit_status()
            if status is not None:
                raise PodError(f"{process.name} ended with status {status}", tail(process.log))

    def stop(self, *, grace_s: float = GRACE_S, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """End everything: engine first, then the sidecar, each by SIGTERM and, past its time, by SIGKILL.

        Nothing of the pod runs when this returns. `is_hurried` becoming true ends the waiting.
        """
        for process in reversed(self._processes):
            process.ask_to_stop()
            deadline = time.monotonic() + grace_s
            while not process.wait(_POLL_S):
                if time.monotonic() > deadline or is_hurried():
                    process.kill()
                    break

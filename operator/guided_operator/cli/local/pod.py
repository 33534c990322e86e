"""Runs a pod template's containers as processes of this machine, in a kubelet's order and by its probes."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from guided_operator.builders.literal import passed_on
from guided_operator.cli.local.probes import Probe
from guided_operator.cli.local.process import Process, tail

READY_TIMEOUT_S: Final = 300.0  # from the engine's start-up to readiness: grammar workers, the guided probe
GRACE_S: Final = 30.0  # after SIGTERM; the launcher itself kills vLLM after 20 s
_POLL_S: Final = 0.2
_PROGRESS_S: Final = 10.0


class PodError(Exception):
    """A container did not start, or ended.

    Parameters
    ----------
    message
        Which container, and how.
    log
        The end of its log.
    """

    def __init__(self, message: str, log: str = "") -> None:
        self.log = log
        super().__init__(message)


class StoppedError(Exception):
    """The caller asked to stop while the pod was starting."""


@dataclass(frozen=True, slots=True)
class Container:
    """What is run of a container."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None

    @classmethod
    def of(cls, container: Any) -> Self:
        """Return a V1Container's part that matters here.

        Raises
        ------
        PodError
            A variable comes from a Secret, and this process has none of that name.
        """
        return cls(
            name=container.name,
            command=tuple(map(passed_on, (*container.command, *(container.args or ())))),
            environment=dict(_variable(variable) for variable in container.env or ()),
            startup=Probe.of(container.startup_probe),
            readiness=Probe.of(container.readiness_probe),
            liveness=Probe.of(container.liveness_probe),
        )


def _variable(variable: Any) -> tuple[str, str]:
    if variable.value_from is None:
        return variable.name, passed_on(variable.value or "")
    if variable.name not in os.environ:
        raise PodError(f"{variable.name} comes from a Secret in a cluster: here, set it in the environment")
    return variable.name, os.environ[variable.name]


def containers(template: Any) -> list[Container]:
    """Return what a pod template (V1PodTemplateSpec) runs for its life, in the order of start.

    Init containers that end are left out: they copy the plugin, which is installed here.
    """
    sidecars = [one for one in template.spec.init_containers or () if one.restart_policy == "Always"]
    return [Container.of(one) for one in (*sidecars, *template.spec.containers)]


class LocalPod:
    """A pod's processes: start, check, stop.

    Parameters
    ----------
    plan
        The containers, in the order of their start.
    folder
        The pod's own folder, removed if this process dies; logs are written below it.
    environment
        Variables for all containers, on top of this process's own and below the container's.
    """

    def __init__(
        self, plan: Sequence[Container], folder: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._processes: list[Process] = []
        self._liveness = {one.name: _Liveness(one.liveness) for one in plan if one.liveness}

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
        wait = _Waiting(self.check, progress, is_stopping)
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
            if container.startup is not None:
                log = self.log(container.name)
                wait.until(container.startup, container.name, "started", container.startup.deadline_s, log)
        for container in self._plan:
            if container.readiness is not None:
                wait.until(container.readiness, container.name, "ready", READY_TIMEOUT_S, None)

    def check(self) -> None:
        """Look whether all started containers run and live.

        Raises
        ------
        PodError
            One ended, or failed its liveness probe as often as the template allows.
        """
        for process in self._processes:
            status = process.exit_status()
            if status is not None:
                raise PodError(f"{process.name} ended with status {status}", tail(process.log))

    def check_liveness(self) -> None:
        """Ask the liveness probes that are due; for a started pod.

        Raises
        ------
        PodError
            One failed as often as the template allows.
        """
        for name, liveness in self._liveness.items():
            reason = liveness.ask(time.monotonic())
            if reason:
                raise PodError(f"{name} is not alive: {reason}", tail(self.log(name)))

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


class _Liveness:
    """Counts one liveness probe's failures in a row."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._due_s = 0.0
        self._failed = 0

    def ask(self, now_s: float) -> str:
        """Return why the container counts as dead, "" while it does not."""
        if now_s < self._due_s:
            return ""
        self._due_s = now_s + self._probe.period_s
        reason = self._probe.ask()
        self._failed = self._failed + 1 if reason else 0
        return reason if self._failed >= self._probe.failures else ""


class _Waiting:
    """Waits for probes, telling how it goes."""

    def __init__(
        self, check: Callable[[], None], progress: Callable[[str], None], is_stopping: Callable[[], bool]
    ) -> None:
        self._check = check
        self._progress = progress
        self._is_stopping = is_stopping

    def until(self, probe: Probe, name: str, state: str, timeout_s: float, log: Path | None) -> None:
        """Return when the probe passes; `log` is where progress is read off (None: the probe's own words)."""
        started = told = time.monotonic()
        while reason := probe.ask():
            self._check()
            if self._is_stopping():
                raise StoppedError
            now = time.monotonic()
            if now - started > timeout_s:
                shown = tail(log) if log else ""
                raise PodError(f"{name} is not {state} after {now - started:.0f} s: {reason}", shown)
            if now - told > _PROGRESS_S:
                told = now
                news = tail(log, 1).strip()[:120] if log else reason
                self._progress(f"{name}: not {state} yet, {now - started:.0f} s  {news}".rstrip())
            time.sleep(_POLL_S)
        self._check()
        self._progress(f"{name}: {state} after {time.monotonic() - started:.1f} s")

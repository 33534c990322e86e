"""kubectl against one cluster."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools import golang
from devtools.process import StartError

TIMEOUT_S = 120.0
FORWARD_TIMEOUT_S = 30.0


class KubectlError(Exception):
    """kubectl ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with one kubeconfig; None: the one that the user's environment names."""

    kubeconfig: Path | None

    def run(self, *args: str, stdin: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
        """Run kubectl and return its output.

        Raises
        ------
        KubectlError
            It ended with an error, or not in time.
        """
        try:
            done = subprocess.run(  # noqa: S603 - kubectl
                [*self._command(), *args],
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(args)} took over {timeout_s:.0f} s") from error
        if done.returncode:
            raise KubectlError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        """Return what `kubectl get ARGS -o json` finds."""
        found: dict[str, Any] = json.loads(self.run("get", *args, "-o", "json"))
        return found

    def apply(self, *objects: dict[str, Any]) -> str:
        """Apply objects."""
        return self.run("apply", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in objects))

    @contextlib.contextmanager
    def forwarded(self, target: str, port: int, namespace: str = "default") -> Iterator[str]:
        """Give the base URL of a port of `target` (pod/NAME or service/NAME) while the context lasts.

        Raises
        ------
        StartError
            The port cannot be forwarded.
        """
        command = [*self._command(), "port-forward", f"--namespace={namespace}", target, f":{port}"]
        child = subprocess.Popen(  # noqa: S603 - kubectl
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield f"http://127.0.0.1:{_forwarded_port(child)}"
        finally:
            child.terminate()
            child.communicate(timeout=10)

    def _command(self) -> list[str]:
        access = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        return [str(golang.kubernetes() / "kubectl"), *access]


def _forwarded_port(child: subprocess.Popen[str]) -> int:
    """Read the port from kubectl's first line; it says one or ends, so reading cannot last."""
    began = time.monotonic()
    said = []
    assert child.stdout is not None
    for line in child.stdout:
        if match := re.search(r"127\.0\.0\.1:(\d+)", line):
            return int(match[1])
        said.append(line)
        if time.monotonic() - began > FORWARD_TIMEOUT_S:
            break
    raise StartError(f"kubectl port-forward: {''.join(said).strip()}")

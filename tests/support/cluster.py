"""Real Kubernetes for tests: what a test sees of a cluster, and how one is had or the test skipped."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from devtools.cluster import NodeCluster
from devtools.golang import MissingToolError

KUBECTL_TIMEOUT_S = 120.0


class KubectlError(Exception):
    """kubectl ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: its admin's kubeconfig, its programs and its logs."""

    kubeconfig: Path
    url: str
    programs: Path
    logs: Path

    @property
    def audit_log(self) -> Path:
        """The API server's audit log; support.audit reads it."""
        return self.logs / "audit.log"

    def kubectl(self, *args: str, stdin: str | None = None, timeout_s: float = KUBECTL_TIMEOUT_S) -> str:
        """Run kubectl as admin and return its output.

        Raises
        ------
        KubectlError
            It ended with an error.
        """
        done = subprocess.run(
            [self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise KubectlError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        """Return what `kubectl get ARGS -o json` finds."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, "-o", "json"))
        return found

    def apply(self, manifest: str | dict[str, Any] | Path) -> str:
        """Apply a manifest: a file, its text, or one object."""
        if isinstance(manifest, Path):
            return self.kubectl("apply", "-f", str(manifest))
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        return self.kubectl("apply", "-f", "-", stdin=text)

    def serves(self, crd: str) -> bool:
        """Say whether the kind that a CRD defines is served.

        `kubectl wait` cannot ask: it fails on a CRD so new that its conditions are null.
        """
        conditions = self.get("crd", crd).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """Make a namespace for one test, and ask for its deletion afterwards."""
        self.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")


@dataclass(frozen=True, slots=True)
class Node(Cluster):
    """A running cluster with a real node, on which pods run, and a Jaeger."""

    devtools: NodeCluster

    @classmethod
    def of(cls, started: NodeCluster, programs: Path) -> "Node":
        """Return what a test sees of a node that devtools started."""
        url = f"https://127.0.0.1:{started.api_port}"
        return cls(started.kubeconfig, url, programs, started.folder / "logs", started)


def unavailable(error: MissingToolError) -> NoReturn:
    """Skip the test with the one line that says why and how; in CI fail, as nothing may be skipped there."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must not skip: {error}", pytrace=False)
    pytest.skip(str(error))

"""`guidedmodel` and `kubectl gm` as users call them, on a real API server with the operator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.cluster import Cluster
from support.kubelet import Kubelet
from support.resources import await_condition, model

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def environment(api_server: Cluster, namespace: str, tmp_path: Path) -> dict[str, str]:
    """A user's: kubectl and our commands on PATH, a kubeconfig whose context names the namespace."""
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    [context] = config["contexts"]
    context["context"]["namespace"] = namespace
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    path = f"{PROGRAMS}:{api_server.programs}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(file)}


def run(environment: dict[str, str], *command: str) -> tuple[int, str, str]:
    """Run a command as the user would; return exit status, stdout and stderr."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_status_tells_ready_or_not_and_what_to_do(
    api_server: Cluster, namespace: str, environment: dict[str, str], kubelet: Kubelet
) -> None:
    command = ("guidedmodel", "status")
    code, out, err = run(environment, *command)
    assert (code, out, err) == (0, "", "there are no GuidedModels here\n")

    kubelet.say(ready=False, reason="ProbeFailed", message="HTTP 500")
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "GuidedDecoding", "False", "ProbeFailed")
    for each in (command, ("kubectl", "gm", "status")):
        code, out, _ = run(environment, *each, "m")
        assert (code, out.splitlines()[0]) == (1, f"GuidedModel {namespace}/m: not ready, ProbeFailed")
        assert "see what the engine answered" in out.partition("next:\n")[2]

    kubelet.say()
    await_condition(api_server, namespace, "Ready", "True", "PodsReady")
    await_condition(api_server, namespace, "Progressing", "False", "Complete")
    code, out, err = run(environment, *command, "m")
    first, *_, last = out.splitlines()
    assert (code, err, first, last) == (0, "", f"GuidedModel {namespace}/m: ready", "  nothing to do")
    _, _, below = out.partition("status:\n")
    told = api_server.get("gm", "m", "-n", namespace)["status"]
    del told["conditions"]
    assert yaml.safe_load(below.partition("next:\n")[0]) == told

    api_server.kubectl("scale", "gm/m", "--replicas=0", "-n", namespace)
    await_condition(api_server, namespace, "Ready", "False", "ScaledToZero")
    assert run(environment, *command)[0] == 1
    # All namespaces, and what is not there.
    assert f"GuidedModel {namespace}/m:" in run(environment, *command, "-A")[1]
    code, out, err = run(environment, *command, "x", "m", "-n", namespace)
    assert (code, out.splitlines()[0]) == (2, f"GuidedModel {namespace}/m: not ready, ScaledToZero")
    assert '"x" not found' in err
    code, out, err = run(environment | {"PATH": str(PROGRAMS)}, *command)
    assert (code, out, err.startswith("guidedmodel: kubectl is needed")) == (2, "", True)

"""A node leaves nothing on the machine, however it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from devtools import cluster, golang
from devtools.golang import MissingToolError

from support.cluster import unavailable
from support.host import HostState, namespaces, processes_in
from support.waiting import eventually

pytestmark = pytest.mark.node


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    try:
        cluster.build()
    except MissingToolError as error:
        unavailable(error)


def test_down_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    before = HostState.now()
    started = cluster.start(tmp_path)
    during = _init_namespaces(started.name)
    try:
        _run_a_pod(started)
        changes = HostState.now().difference(before)
        assert changes.pop("cgroups"), "the node's pods have cgroups"
        made = sorted(started.made_folders)
        assert changes.pop("files", made) == made, "mount points"
        assert changes == {}, "all else happens in namespaces of its own"
        assert len(processes_in(during)) > 8
    finally:
        cluster.stop(started)
    assert processes_in(during) == []
    assert HostState.now().difference(before) == {}


def test_node_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    before = HostState.now()
    script = (
        "import pathlib, sys, time; from devtools import cluster; cluster.start(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", f"{script}; time.sleep(600)", str(tmp_path)]
    owner = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(golang.TOOLS)})
    try:
        eventually((tmp_path / "ready").exists, 120)
        started = cluster.load(tmp_path)
        assert started is not None
        during = _init_namespaces(started.name)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    eventually(lambda: processes_in(during) == [], 30)
    assert cluster.running(tmp_path) is None, "one that ended without being stopped is tidied up"
    assert HostState.now().difference(before) == {}


def _init_namespaces(name: str) -> dict[str, int]:
    """Return the namespaces of the node's first process, found by the node's name among its arguments."""
    ours = namespaces(os.getpid())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            theirs = namespaces(int(entry.name))
        except OSError:
            continue
        if name.encode() in arguments and theirs["pid"] != ours["pid"]:
            assert not set(theirs.values()) & set(ours.values())
            return theirs
    raise AssertionError(f"no process of {name} in namespaces of its own")


def _run_a_pod(started: cluster.NodeCluster) -> None:
    """Let the node do all that it does: network, mounts, cgroups."""
    kubectl = [golang.kubernetes() / "kubectl", f"--kubeconfig={started.kubeconfig}"]
    overrides = json.dumps({"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}})
    run = ["run", "pod", "--image=localhost/pause:1", "--restart=Never", f"--overrides={overrides}"]
    subprocess.run([*kubectl, *run], check=True, timeout=60)
    wait = ["wait", "--for=condition=Ready", "pod/pod", "--timeout=60s"]
    subprocess.run([*kubectl, *wait], check=True, timeout=90)

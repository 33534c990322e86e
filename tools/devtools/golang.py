"""Programs built from source by Go, once per version, into the cache."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from devtools import cache
from devtools.process import output

TOOLS = Path(__file__).resolve().parents[1]
KUBERNETES = "v1.36.3"
OLDEST_KUBERNETES = "v1.30.14"  # of the oldest minor version that the chart takes
CONTAINERD = "v2.4.2"
HELM = "v4.3.1"
PROMETHEUS_OPERATOR = "v0.85.0"
MINIMUM = (1, 26)
FETCHES_NEWER = (1, 21)
BUILD_TIMEOUT_S = 3600  # the control plane takes 6.5 minutes on two cold cores, and tests may run beside it


class MissingToolError(Exception):
    """A program that building or running needs is not on this machine; the message says how to get it."""


def require(program: str, how: str) -> str:
    """Return the path of a program on PATH.

    Raises
    ------
    MissingToolError
        It is not there; `how` is what the message advises.
    """
    path = shutil.which(program)
    if path is None:
        raise MissingToolError(f"{program} is not installed: {how}")
    return path


def kubernetes_version() -> str:
    """Return which Kubernetes tests run on: $KUBERNETES = "oldest" asks for the oldest one."""
    return OLDEST_KUBERNETES if os.environ.get("KUBERNETES") == "oldest" else KUBERNETES


def kubernetes() -> Path:
    """Return the folder of etcd, the control plane, kubectl, kubelet and kube-proxy.

    Of the oldest version it is the control plane and kubectl, without what a node needs.
    """
    if kubernetes_version() == OLDEST_KUBERNETES:
        return _oldest_kubernetes()
    module = TOOLS / "kubernetes"
    flags = _stamped(KUBERNETES)

    def build(folder: Path) -> None:
        _go("build", "-ldflags", flags, "-o", f"{folder}/", "tool", cwd=module)
        (folder / "server").rename(folder / "etcd")  # the binary of etcd's module takes its folder's name

    return cache.built("kubernetes", [module / "go.mod", module / "go.sum", flags], build)


def _oldest_kubernetes() -> Path:
    """Kubelet and kube-proxy are not in it: modules that they need are no longer to be had as they were."""
    module, newest = TOOLS / "kubernetes-oldest", TOOLS / "kubernetes"
    flags = _stamped(OLDEST_KUBERNETES)

    def build(folder: Path) -> None:
        _go("build", "-ldflags", flags, "-o", f"{folder}/", "tool", cwd=module)
        _go("build", "-ldflags", "-s -w", "-o", f"{folder}/etcd", "go.etcd.io/etcd/server/v3", cwd=newest)

    return cache.built("kubernetes-oldest", [module, newest, flags], build)


def _stamped(version: str) -> str:
    """Return the linker's flags for programs of this version, which they tell whoever asks."""
    major, minor = version.lstrip("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    return f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"


def containerd() -> Path:
    """Return the folder of containerd, its runc shim and ctr."""
    packages = [
        f"github.com/containerd/containerd/v2/cmd/{name}@{CONTAINERD}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ]
    return cache.built("containerd", packages, lambda folder: _install(folder, *packages))


def helm() -> Path:
    """Return the folder of helm."""
    package = f"helm.sh/helm/v4/cmd/helm@{HELM}"
    return cache.built("helm", [package], lambda folder: _install(folder, package))


def jaeger() -> Path:
    """Return the folder of Jaeger 2's `jaeger`, a static program: OTLP in, its query API out.

    Its module counts by the last version of Jaeger 1, which was released with 2.13.0.
    """
    return _module(TOOLS / "jaeger", "tool", is_static=True)


def otelcol() -> Path:
    """Return the folder of `otelcol`, a collector with the parts that manifests/observability names."""
    return _module(TOOLS / "otelcol", is_static=True)


def keda() -> Path:
    """Return the folder of KEDA's `operator` and `adapter`, and of its CRDs in `crds`."""
    module = TOOLS / "keda"

    def build(folder: Path) -> None:
        _go("build", "-ldflags", "-s -w", "-o", f"{folder}/", "tool", cwd=module)
        source = _run("list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2", cwd=module)
        shutil.copytree(Path(source.strip()) / "config/crd/bases", folder / "crds")

    return cache.built("keda", [module], build)


def prometheus_crds() -> Path:
    """Return the folder of the Prometheus operator's CRDs, `monitoring.coreos.com_PLURAL.yaml`."""
    module = f"github.com/prometheus-operator/prometheus-operator@{PROMETHEUS_OPERATOR}"

    def fetch(folder: Path) -> None:
        crds = Path(json.loads(_run("mod", "download", "-json", module, cwd=folder))["Dir"])
        shutil.copytree(crds / "example/prometheus-operator-crd", folder, dirs_exist_ok=True)

    return cache.built("prometheus-crds", [module], fetch)


def promql() -> Path:
    """Return the folder of `promql`, which answers queries about expositions with Prometheus' own engine."""
    return _module(TOOLS / "promql")


def expansion() -> Path:
    """Return the folder of `expansion`, which expands containers' words with the kubelet's own function."""
    return _module(TOOLS / "expansion")


def player() -> Path:
    """Return the folder of `player`, which plays nodes and users in `make bench-operator`."""
    return _module(TOOLS.parent / "benchmarks/player")


def registry() -> Path:
    """Return the folder of `registry`, a container registry for the test node."""
    return _module(TOOLS / "registry")


def pause() -> Path:
    """Return the folder of `pause`, the static program of the pods' sandboxes."""
    return _module(TOOLS / "pause", is_static=True)


def _module(module: Path, target: str = ".", *, is_static: bool = False) -> Path:
    """Return the folder of the program of a Go module of ours; target "tool": of the tools that it names."""
    env = {"CGO_ENABLED": "0"} if is_static else {}

    def build(folder: Path) -> None:
        _go("build", "-ldflags", "-s -w", "-o", f"{folder}/", target, cwd=module, env=env)

    return cache.built(module.name, [module, *([str(env)] if env else [])], build)


def _install(folder: Path, *packages: str) -> None:
    _go("install", "-ldflags", "-s -w", *packages, cwd=folder, env={"GOBIN": str(folder)})


def _program() -> str:
    """Return the path of a Go that is new enough, or that fetches a newer one by itself."""
    how = f"install Go {'.'.join(map(str, MINIMUM))} or newer (https://go.dev/dl)"
    go = require("go", how)
    done = subprocess.run(  # noqa: S603 - go
        [go, "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, timeout=60, check=False
    )
    version, _, toolchain = done.stdout.strip().partition("\n")
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < (MINIMUM if toolchain == "local" else FETCHES_NEWER):
        raise MissingToolError(f"go is {version or 'too old'}: {how}")
    return go


def _go(*args: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Build, telling how long it took: CI's budget is kept by looking at these lines."""
    began = time.monotonic()
    name = cwd.name if args[0] == "build" else args[-1].split("@")[0].rsplit("/", 1)[-1]
    print(f"devtools: building {name} (minutes on a new machine)", flush=True)  # noqa: T201 - progress
    _run(*args, cwd=cwd, env=env)
    print(f"devtools: built {name} in {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201 - progress


def _run(*args: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run go and return what it printed."""
    environment = os.environ | {"GOFLAGS": "-buildvcs=false"} | (env or {})
    return output([_program(), *args], BUILD_TIMEOUT_S, cwd=cwd, env=environment)

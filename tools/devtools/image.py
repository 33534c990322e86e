"""The images of the test node: a base made locally, an engine's, and ours built from the Dockerfile."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from devtools import cache, golang, oci, packages
from devtools.process import output

ROOT = golang.TOOLS.parent
BASE = "localhost/python-base:1"
ENGINE = "vllm/vllm-openai-cpu:v0.32.0"  # as the samples name it: there is no registry to pull it from
OPERATOR = "localhost/guidedmodel:test"
# Where a node shows its containers the engine environment. Not its own path: pods mount over /tmp and /run.
ENGINE_ENV = Path("/opt/engine")
PACKAGES = "ca-certificates,libnuma1,python3,python3-venv"  # libnuma: vLLM for CPU
WASTE = ("var/cache/apt", "var/lib/apt", "usr/share/doc", "usr/share/locale", "usr/share/man")
CERTIFICATES = Path("/etc/ssl/certs")
BUILD_TIMEOUT_S = 900
# What the Dockerfile copies; anything else may change without a new image.
OPERATOR_INPUTS = (
    "Dockerfile",
    "LICENSE",
    "README.md",
    "engine",
    "operator",
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/operator.txt",
    "sidecar",
)


def base() -> Path:
    """Return the archive of a minimal distribution with Python: this machine's own, whose Python fits."""
    suite, mirror = _distribution()

    def build(folder: Path) -> None:
        packages.ensure(packages.IMAGE, "building images")
        rootfs = folder / "rootfs"
        debootstrap = golang.require("debootstrap", "apt-get install debootstrap")
        _run([debootstrap, "--variant=minbase", f"--include={PACKAGES}", suite, str(rootfs), mirror])
        for waste in WASTE:
            shutil.rmtree(rootfs / waste, ignore_errors=True)
        # The mirror's address is this machine's business.
        (rootfs / "etc/apt/sources.list").unlink(missing_ok=True)
        oci.archive(rootfs, BASE, folder / "image.tar", {"Cmd": ["python3"]})

    return cache.built("base-image", [suite, PACKAGES], build) / "image.tar"


def engine() -> Path:
    """Return the archive of an engine image: the base, with the engine environment's programs on PATH.

    The environment itself is mounted by the node, at ENGINE_ENV.
    """
    rootfs = base().parent / "rootfs"

    def build(folder: Path) -> None:
        path = oci.PATH.replace("=", f"={ENGINE_ENV}/bin:")
        oci.archive(rootfs, f"docker.io/{ENGINE}", folder / "image.tar", {"Cmd": ["python3"], "Env": [path]})

    return cache.built("engine-image", [str(rootfs), str(ENGINE_ENV), ENGINE], build) / "image.tar"


def operator() -> Path:
    """Return the archive of our own image, built by buildah from the Dockerfile and the working tree."""
    parent = base()

    def build(folder: Path) -> None:
        packages.ensure(packages.IMAGE, "building images")
        with tempfile.TemporaryDirectory(prefix="guidedmodel-buildah-") as scratch:
            _buildah(Path(scratch), parent, folder / "image.tar")

    return (
        cache.built("operator-image", [*(ROOT / item for item in OPERATOR_INPUTS), str(parent)], build)
        / "image.tar"
    )


def _buildah(scratch: Path, parent: Path, archive: Path) -> None:
    program = golang.require("buildah", "apt-get install buildah")
    # vfs and chroot work without user namespaces and without a container engine.
    buildah = [
        program,
        "--root",
        str(scratch / "root"),
        "--runroot",
        str(scratch / "run"),
        "--storage-driver",
        "vfs",
    ]
    context = scratch / "context"
    context.mkdir()
    for item in OPERATOR_INPUTS:
        _copy(ROOT / item, context / item)
    build = ["bud", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE=oci-archive:{parent}"]
    _run([*buildah, *build, *_from_this_machine(), "--tag", OPERATOR, str(context)])
    _run([*buildah, "push", OPERATOR, f"oci-archive:{archive}:{OPERATOR}"])


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy2(source, target)


def _from_this_machine() -> list[str]:
    """Let the build fetch packages as this machine does: its index, its trusted certificates."""
    names = [name for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") if os.environ.get(name)]
    arguments = [f"--build-arg={name}={os.environ[name]}" for name in names]
    return [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", *arguments]


def _distribution() -> tuple[str, str]:
    """Return this machine's suite and the mirror it installs from.

    Raises
    ------
    MissingToolError
        It is no Debian or Ubuntu.
    """
    get = golang.require(
        "apt-get", "the test node's base image is made with debootstrap, on Debian or Ubuntu"
    )
    wanted = [
        "indextargets",
        "--format",
        "$(CODENAME) $(REPO_URI)",
        "Created-By: Packages",
        "Component: main",
    ]
    for line in _run([get, *wanted]).splitlines():
        suite, _, mirror = line.partition(" ")
        if "-" not in suite:  # neither updates nor security, which debootstrap cannot start from
            return suite, mirror
    raise golang.MissingToolError("apt has no distribution to take a base image from: run apt-get update")


def _run(command: list[str]) -> str:
    began = time.monotonic()
    said = output(command, BUILD_TIMEOUT_S)
    if (took := time.monotonic() - began) > 5:
        print(f"devtools: {Path(command[0]).name} took {took:.0f} s", flush=True)  # noqa: T201 - progress
    return said

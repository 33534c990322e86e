"""What node and image build take from the distribution: installed where that is possible, else named."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from devtools.golang import MissingToolError

INSTALL_TIMEOUT_S = 600

# What must be there -> the Debian package that has it.
NODE = {
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
IMAGE = {"buildah": "buildah", "debootstrap": "debootstrap"}


def ensure(wanted: dict[str, str], purpose: str) -> None:
    """Install the packages whose programs lack.

    Raises
    ------
    MissingToolError
        They cannot be installed; the message says how.
    """
    if os.geteuid() != 0:
        raise MissingToolError(f"{purpose} needs root: run as root (sudo -E make ...)")
    lacking = _lacking(wanted)
    if not lacking:
        return
    names = " ".join(sorted({wanted[item] for item in lacking}))
    if shutil.which("apt-get") is None:
        raise MissingToolError(f"{purpose} needs {names}: install them with your distribution's packager")
    print(f"devtools: apt-get install {names}", flush=True)  # noqa: T201 - progress
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in ("apt-get -q update", f"apt-get -q install -y --no-install-recommends {names}"):
        done = subprocess.run(  # noqa: S603 - apt-get with the names above
            command.split(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise MissingToolError(f"{purpose} needs {names}, and `{command}` failed: {done.stderr[-500:]}")
    if lacking := _lacking(wanted):
        raise MissingToolError(f"{purpose} needs {' '.join(lacking)}, which {names} did not bring")


def _lacking(wanted: Iterable[str]) -> list[str]:
    return [item for item in wanted if not (Path(item).exists() if "/" in item else shutil.which(item))]

"""What node and image build take from the distribution: installed where that is possible, else named."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from devtools.golang import TOOLS, MissingToolError
from devtools.process import output

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
    names = sorted({wanted[item] for item in lacking})
    print(f"devtools: apt-get install {' '.join(names)}", flush=True)  # noqa: T201 - progress
    output([TOOLS / "bootstrap", *names], INSTALL_TIMEOUT_S, MissingToolError)
    if lacking := _lacking(wanted):
        raise MissingToolError(f"{purpose} needs {' '.join(lacking)}, which {' '.join(names)} did not bring")


def _lacking(wanted: Iterable[str]) -> list[str]:
    return [item for item in wanted if not (Path(item).exists() if "/" in item else shutil.which(item))]

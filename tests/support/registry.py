"""A registry that the test node pulls from, and a builder for `make push` that pushes to it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devtools import golang, image
from devtools.process import Process

from support.cluster import Node

# As buildah, with a storage of its own and without TLS. What it builds of our Dockerfile was built before, on
# a base of this machine's: the Dockerfile's own is in a registry that not every machine reaches.
_BUILDER = """#!/bin/sh
set -e
own() {{ buildah --root {folder}/root --runroot {folder}/run --storage-driver vfs "$@"; }}
case $1 in
  build) own tag "$(own pull --quiet oci-archive:{archive})" "$4" ;;
  push) own push --quiet --tls-verify=false "$2" ;;
  *) own "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where `make push` pushes to, `builder` being its BUILDER."""

    address: str
    builder: Path


@contextmanager
def registry(node: Node, folder: Path) -> Iterator[Registry]:
    """Serve at one address for this machine and the node: a socket of each one's network."""
    images = folder / "images"
    images.mkdir()
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        here.listen(16)
        port = here.getsockname()[1]
        # Containerd, as every client, takes a registry at `localhost` without TLS.
        enter = ["/usr/bin/nsenter", "-t", str(node.devtools.pid), "-n", "--"]
        serve = [golang.registry() / "registry", str(port), images, str(here.fileno())]
        process = Process.start(
            "registry", [*enter, *serve], folder / "registry.log", pass_fds=[here.fileno()]
        )
    builder = folder / "builder"
    builder.write_text(_BUILDER.format(folder=folder / "buildah", archive=image.operator()))
    builder.chmod(0o755)
    try:
        yield Registry(f"localhost:{port}", builder)
    finally:
        process.kill()


def environment(node: Node, found: Registry) -> dict[str, str]:
    """Return what somebody has who follows the README: helm and kubectl, a kubeconfig, a builder."""
    return os.environ | {
        "PATH": os.pathsep.join([str(golang.helm()), str(node.programs), os.environ["PATH"]]),
        "KUBECONFIG": str(node.kubeconfig),
        "BUILDER": str(found.builder),
    }

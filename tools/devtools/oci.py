"""Image archives made from a folder, without a container engine."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devtools import cache, golang

PAUSE = "localhost/pause:1"
JAEGER = "localhost/jaeger:1"
COLLECTOR = "localhost/otelcol:1"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MEDIA = "application/vnd.oci.image"


def pause_image() -> Path:
    """Return the archive of the image that every pod's sandbox runs."""
    return _of_program(golang.pause() / "pause", PAUSE)


def jaeger_image() -> Path:
    """Return the archive of an image that takes Jaeger's flags as arguments, as Jaeger's own does."""
    return _of_program(golang.jaeger() / "jaeger", JAEGER)


def collector_image() -> Path:
    """Return the archive of an image that takes the collector's flags as arguments, as its own does."""
    return _of_program(golang.otelcol() / "otelcol", COLLECTOR)


def _of_program(program: Path, name: str) -> Path:
    """Return the archive of an image that holds one static program and runs it."""

    def build(folder: Path) -> None:
        rootfs = folder / "rootfs"
        rootfs.mkdir()
        shutil.copy(program, rootfs)
        archive(rootfs, name, folder / "image.tar", {"Entrypoint": [f"/{program.name}"]})

    return cache.built(f"{program.name}-image", [str(program)], build) / "image.tar"


def archive(
    rootfs: Path,
    name: str,
    path: Path,
    config: Mapping[str, Sequence[str]],
) -> None:
    """Write the one-layer image NAME:TAG, whose layer is the folder `rootfs`, as an OCI archive.

    `config`: what its containers run, by OCI's names: Entrypoint, Cmd, Env.
    """
    layer = path.with_suffix(".layer")
    try:
        with tarfile.open(layer, "w") as tar:
            tar.add(rootfs, arcname=".")
        layer_digest = _digest(layer)
        image = _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": [PATH], **config},
                "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{MEDIA}.manifest.v1+json",
                "config": _descriptor("config.v1+json", image),
                "layers": [
                    {
                        "mediaType": f"{MEDIA}.layer.v1.tar",
                        "digest": layer_digest,
                        "size": layer.stat().st_size,
                    }
                ],
            }
        )
        names = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        described = _descriptor("manifest.v1+json", manifest) | {"annotations": names}
        with tarfile.open(path, "w") as tar:
            _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [described]}))
            for blob in (image, manifest):
                _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
            tar.add(layer, arcname=f"blobs/sha256/{layer_digest.removeprefix('sha256:')}")
    finally:
        layer.unlink(missing_ok=True)


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    return {"mediaType": f"{MEDIA}.{kind}", "digest": digest, "size": len(blob)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))

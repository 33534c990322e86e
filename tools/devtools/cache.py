"""Folders built once and kept outside the checkout, each named by a hash of its inputs."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path


def root() -> Path:
    """Return the cache: $GUIDEDMODEL_CACHE, else /var/cache/guidedmodel for root, else in the user's cache.

    Root's is not below root's home, because pods of another user must be able to read it.
    """
    if chosen := os.environ.get("GUIDEDMODEL_CACHE"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/cache/guidedmodel")
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "guidedmodel"


def key(inputs: Iterable[Path | str]) -> str:
    """Return a short hash of texts and of files' contents (a folder counts with all files below it)."""
    digest = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            digest.update(item.encode() + b"\0")
            continue
        files = sorted(f for f in item.rglob("*") if f.is_file()) if item.is_dir() else [item]
        for file in files:
            digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def built(name: str, inputs: Iterable[Path | str], build: Callable[[Path], None]) -> Path:
    """Return the folder NAME-HASH, built by `build(folder)` if no earlier run did.

    One process builds while others wait; a build that fails leaves nothing that counts as built.
    """
    base = root()
    base.mkdir(parents=True, exist_ok=True)
    folder = base / f"{name}-{key(inputs)}"
    done = folder / ".built"
    with (base / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            done.touch()
    return folder

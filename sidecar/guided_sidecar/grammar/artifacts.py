"""The folder of compiled artefacts: named by key, for this user alone. Ranks know what they hash to."""

import hashlib
import os
from pathlib import Path


def reset(folder: Path) -> None:
    """Make the folder, and empty it: what an earlier service wrote nobody has a lease on."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink(missing_ok=True)


def write(folder: Path, key: str, content: bytes) -> str:
    """Write an artefact and return its content's SHA-256 in hex; OSError: no room, and nothing is left."""
    file = os.open(folder / key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
    except OSError:
        remove(folder, key)
        raise
    return hashlib.sha256(content).hexdigest()


def room_bytes(folder: Path) -> int:
    """Return the size of the file system that a folder is on, or is to be made on."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    about = os.statvfs(there)
    return about.f_frsize * about.f_blocks


def remove(folder: Path, key: str) -> None:
    """Remove an artefact, if it is there."""
    (folder / key).unlink(missing_ok=True)

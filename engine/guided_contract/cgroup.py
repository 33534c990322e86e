"""What the container may use: its cgroup's CPU quota and memory limit, version 2 or 1. Never the host's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_MOST_DIGITS: Final = 20  # of 64 bits
_NO_LIMIT_BYTES: Final = 1 << 60  # version 1 says "none" by a number near 2^63


def cpu_quota(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the CPU quota of this process in CPUs (2.5 is two and a half); None: there is none.

    `root` is where cgroups are mounted, `membership` a file like /proc/self/cgroup.
    """
    said = [_read(folder / "cpu.max").partition(" ")[::2] for folder in _folders(root, membership, "")]
    first = _folders(root, membership, "cpu")
    said += [(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")) for folder in first]
    known = ((_number(quota), _number(period)) for quota, period in said)
    return min((quota / period for quota, period in known if quota is not None and period), default=None)


def memory_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return the memory limit of this process's cgroup in bytes; None: there is none. See `cpu_quota`."""
    files = [folder / "memory.max" for folder in _folders(root, membership, "")]
    files += [folder / "memory.limit_in_bytes" for folder in _folders(root, membership, "memory")]
    limits = [number for text in map(_read, files) if (number := _number(text)) is not None]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def _folders(root: Path, membership: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of those above it; "": of version 2.

    A container may see its own cgroup as the root, and yet be told the path that the host has for it.
    """
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        bases = [root / controllers, root / controller] if controller else [root, root / "unified"]
        for base in bases:
            below = Path(path.lstrip("/"))
            yield from (base / part for part in (below, *below.parents))


def _number(text: str) -> int | None:
    """Return what a kernel would write there; None for "max", for -1 and for what no kernel writes."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""

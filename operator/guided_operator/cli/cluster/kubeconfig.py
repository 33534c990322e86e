"""Where the kubeconfig is, and what contexts it has: light to import, for completion."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

_DEFAULT: Final = "~/.kube/config"


def files(chosen: str | None) -> str:
    """Return the files, as KUBECONFIG has them, that make up the kubeconfig."""
    return chosen or os.environ.get("KUBECONFIG") or _DEFAULT


def existing(chosen: str | None) -> list[Path]:
    """Return those of the files that are there."""
    paths = (Path(each).expanduser() for each in files(chosen).split(os.pathsep) if each)
    return [path for path in paths if path.is_file()]


def contexts(chosen: str | None) -> list[str]:
    """Return the names of all contexts; [] where a file is not as it should be."""
    try:
        found: list[dict[str, Any]] = [yaml.safe_load(path.read_bytes()) for path in existing(chosen)]
        names = {each["name"] for config in found for each in config.get("contexts") or ()}
        return sorted(name for name in names if isinstance(name, str))
    except Exception:  # noqa: BLE001 - the library's too: pressing TAB is no time to be told what is wrong
        return []

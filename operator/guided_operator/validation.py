"""What makes a GuidedModel unfit to run although the API server took it.

The operator then sets Compatible=False and makes no pods.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from guided_contract.compatibility import unsupported_vllm
from guided_operator.api import GuidedModel, Problem
from guided_operator.api.pod_spec import Resources
from guided_operator.api.quantity import amount
from guided_operator.api.reserved import OWNED_ARGS, UNSUPPORTED_ARGS
from guided_operator.api.rules import broken_rules

# vLLM's own images, and copies that keep the name, have the version as tag; other tags say nothing.
_VERSIONED_VLLM: Final = re.compile(r"(?:^|/)vllm[^/:@]*:v?([0-9]+\.[0-9]+\.[0-9]+(?:\.?(?:rc|post)[0-9]+)?)")
_NOT_FOR_ARGS: Final = tuple(
    form
    for name, short in (OWNED_ARGS | UNSUPPORTED_ARGS).items()
    for form in (f"--{name}", f"-{short}")
    if form != "-"
)


def check(gm: GuidedModel) -> list[Problem]:
    """Return every reason against running this model; none: it can run.

    Includes what CEL refuses, for a resource that was stored before its rule existed.
    """
    return [problem for find in _CHECKS for problem in find(gm)]


def _vllm_unsupported(gm: GuidedModel) -> Iterator[Problem]:
    """Find a vLLM that the plugin would leave untouched; with placement Scheduler that is what is wanted."""
    found = _VERSIONED_VLLM.search(gm.spec.engine.image)
    if found is None or gm.spec.guided_decoding.placement == "Scheduler":
        return
    reason = unsupported_vllm(found[1])
    if reason:
        message = f"{reason}; use a supported image, or guidedDecoding.placement Scheduler (vLLM's own path)"
        yield Problem("spec.engine.image", message)


def _argument_abbreviated(gm: GuidedModel) -> Iterator[Problem]:
    """Find `--tensor-par` and the like: a unique beginning of an option means the option."""
    for index, argument in enumerate(gm.spec.engine.args):
        name = argument.split("=", 1)[0].replace("_", "-")
        if not re.fullmatch(r"--[a-z-]{2,}|-[a-z]+", name):
            continue
        meant = [option for option in _NOT_FOR_ARGS if option.startswith(name) and option != name]
        if meant:
            yield Problem(
                f"spec.engine.args[{index}]", f"{name} abbreviates {meant[0]}, which is not for args"
            )


def _requests_exceed_limits(gm: GuidedModel) -> Iterator[Problem]:
    """Find amounts that Kubernetes refuses in a pod, and so in the Deployment."""
    yield from _exceeding("spec.resources", gm.spec.resources)
    yield from _exceeding("spec.sidecar.resources", gm.spec.sidecar.resources)


def _exceeding(field: str, resources: Resources) -> Iterator[Problem]:
    for part, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, quantity in amounts.items():
            if amount(quantity) < 0:
                yield Problem(f"{field}.{part}.{name}", f"must not be negative, is {quantity}")
    for name, quantity in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and amount(quantity) > amount(limit):
            yield Problem(f"{field}.requests.{name}", f"{quantity} exceeds the limit, {limit}")


_CHECKS: Final[tuple[Callable[[GuidedModel], Iterable[Problem]], ...]] = (
    broken_rules,
    _vllm_unsupported,
    _argument_abbreviated,
    _requests_exceed_limits,
)

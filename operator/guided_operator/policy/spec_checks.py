"""Why a GuidedModel cannot run although the API server accepted it.

The operator then sets Compatible=False and makes no pods.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from guided_contract.combinations.table import that_hold
from guided_contract.compatibility import unsupported_vllm
from guided_operator.api import GuidedModel, Problem
from guided_operator.api.base import seconds
from guided_operator.api.combinations import RUNNER, facts_of, largest_batch
from guided_operator.api.logits_processors import MAX_PARAMS_BYTES, MAX_PARAMS_DEPTH, is_too_large
from guided_operator.api.pod import SOURCES
from guided_operator.api.quantity import amount
from guided_operator.api.resources import Resources
from guided_operator.policy import arguments

# Extended resources that are accelerators. Others are not: network devices, for instance, stand in resources.
_ACCELERATORS: Final = re.compile(
    r"(nvidia\.com/(gpu|gpu\.shared|pgpu|mig-.+)|amd\.com/.+|gpu\.intel\.com/.+|habana\.ai/.+|"
    r"google\.com/tpu|aws\.amazon\.com/neuron.*|huawei\.com/.+|.+/gpu)"
)
_ELSEWHERE: Final = (
    "accelerators are set in engine.accelerator: remove them here, and set there what each rank gets, such "
    "as {resource: amd.com/gpu, perRank: 1}"
)
# Labels and annotations that decide what a pod may do, and which pods are this model's.
_RESERVED: Final = ("guidedmodel.io", "kubernetes.io", "k8s.io")
_HARMLESS: Final = "cluster-autoscaler.kubernetes.io"


def check(gm: GuidedModel) -> list[Problem]:
    """Return every reason against running this model, but what the API server refuses; none: it can run."""
    return [*_vllm_unsupported(gm), *check_spec(gm)]


def check_spec(gm: GuidedModel) -> list[Problem]:
    """Return every reason but the image, which `guidedmodel run` has no use for."""
    return [problem for find in _CHECKS for problem in find(gm)]


def _vllm_unsupported(gm: GuidedModel) -> Iterator[Problem]:
    """Find a vLLM that the plugin would leave untouched; with placement Scheduler that is what is wanted."""
    told, tagged = gm.spec.engine.version, gm.spec.engine.tagged_version
    if told and tagged and told != tagged:
        yield Problem("spec.engine.version", f"must match the tag of engine.image, {tagged}, or be removed")
    version = gm.spec.engine.vllm_version
    if version is None or gm.spec.guided_decoding.placement == "Scheduler":
        return
    if reason := unsupported_vllm(version):
        message = f"{reason}; use a supported image, or set guidedDecoding.placement to Scheduler"
        yield Problem("spec.engine.version" if told else "spec.engine.image", message)


def _combination_refused(gm: GuidedModel) -> Iterator[Problem]:
    """Find what vLLM, or the plugin on a rank, would refuse of arguments and variables of the engine."""
    facts = facts_of(gm.spec)
    for row in that_hold(facts, "operator refuses"):
        yield Problem(f"spec.{row.field}", row.told(facts))


def _runner_unclear(gm: GuidedModel) -> Iterator[Problem]:
    """Find a choice of model runner that the table cannot read, of which vLLM takes whole numbers alone."""
    for index, variable in enumerate(gm.spec.engine.env):
        if variable.name == RUNNER and variable.value not in {"0", "1"}:
            message = f'{RUNNER} must be "0" or "1", because supported combinations depend on it'
            yield Problem(f"spec.engine.env[{index}]", message)


def _nothing_to_choose(gm: GuidedModel) -> Iterator[Problem]:
    """Find numTokens Auto where vLLM's schedule by batch size has one entry; the engine only logs it."""
    asked = gm.spec.speculative
    if asked is not None and asked.by_load and largest_batch(gm.spec.engine) == 1:
        yield Problem(
            "spec.speculative.numTokens",
            "Auto needs batch sizes above 1: set a number, or "
            "set --max-num-seqs and --max-num-batched-tokens to at least 2",
        )


def _params_too_large(gm: GuidedModel) -> Iterator[Problem]:
    """Find params that are data rather than settings; a schema cannot bound JSON of any shape."""
    for index, processor in enumerate(gm.spec.logits_processors):
        if is_too_large(processor.params):
            yield Problem(
                f"spec.logitsProcessors[{index}].params",
                f"is larger than {MAX_PARAMS_BYTES} bytes of JSON, or nested deeper than {MAX_PARAMS_DEPTH} "
                "levels: put the data into a ConfigMap, mount it by pod.volumes, and pass its path in /mnt",
            )


def _deadline_before_the_start(gm: GuidedModel) -> Iterator[Problem]:
    """Find a deadline of a rollout by which a pod that is still starting would count as stuck."""
    deadline, start = gm.spec.rollout.progress_deadline, gm.spec.probes.startup_timeout
    if deadline is not None and seconds(deadline) < seconds(start):
        message = f"must be at least probes.startupTimeout ({start}), or a starting pod would count as stuck"
        yield Problem("spec.rollout.progressDeadline", message)


def _resources_wrong(gm: GuidedModel) -> Iterator[Problem]:
    """Find accelerators beside the engine's own, and amounts that Kubernetes refuses in a pod."""
    own = gm.spec.engine.accelerator.resource
    yield from _wrong("spec.resources", gm.spec.resources, own)
    yield from _wrong("spec.sidecar.resources", gm.spec.sidecar.resources, own)


def _wrong(field: str, resources: Resources, accelerator: str | None) -> Iterator[Problem]:
    for part, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, quantity in amounts.items():
            if name == accelerator or _ACCELERATORS.fullmatch(name):
                yield Problem(f"{field}.{part}.{name}", _ELSEWHERE)
            if amount(quantity) < 0:
                yield Problem(f"{field}.{part}.{name}", f"must not be negative, is {quantity}")
    for name, quantity in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and amount(quantity) > amount(limit):
            yield Problem(f"{field}.requests.{name}", f"{quantity} exceeds the limit, {limit}")


def _pod_parts_wrong(gm: GuidedModel) -> Iterator[Problem]:
    """Find labels and annotations that are others' to set, and volumes that reach out of the namespace."""
    own = gm.spec.pod
    for part, keys in (("labels", own.labels), ("annotations", own.annotations)):
        for key in filter(_is_reserved, keys):
            message = f"{key} is reserved: the operator and the cluster set keys of {', '.join(_RESERVED)}"
            yield Problem(f"spec.pod.{part}", f"{message} (except {_HARMLESS})")
    for index, volume in enumerate(own.volumes):
        if sorted(volume) not in [sorted(("name", source)) for source in SOURCES]:
            message = f"must have a name and exactly one of {', '.join(SOURCES)}, and nothing else"
            yield Problem(f"spec.pod.volumes[{index}]", message)


def _is_reserved(key: str) -> bool:
    domain = key.rpartition("/")[0].lower()
    return domain != _HARMLESS and any(f".{domain}".endswith(f".{each}") for each in _RESERVED)


_CHECKS: Final[tuple[Callable[[GuidedModel], Iterable[Problem]], ...]] = (
    arguments.check,
    _combination_refused,
    _runner_unclear,
    _nothing_to_choose,
    _params_too_large,
    _deadline_before_the_start,
    _resources_wrong,
    _pod_parts_wrong,
)

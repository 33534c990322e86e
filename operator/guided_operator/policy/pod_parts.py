"""What nobody may have of a pod, in the parts of `spec.pod` that the API server alone knows the shape of."""

from collections.abc import Iterator
from typing import Final

from guided_operator.api import GuidedModel, Problem
from guided_operator.api.pod import SOURCES

# They decide what a pod may do, and which pods are this model's.
_RESERVED: Final = ("guidedmodel.io", "kubernetes.io", "k8s.io")
_HARMLESS: Final = "cluster-autoscaler.kubernetes.io"


def check(gm: GuidedModel) -> Iterator[Problem]:
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

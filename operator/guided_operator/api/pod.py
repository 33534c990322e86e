"""What is said of the pods in a pod's own words: `spec.pod`.

The fields are the list of what may be said; no container is among them. What they hold is passed on as it is
written, and the API server judges it in the Deployment; `policy.spec_checks` refuses what nobody may have.
"""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from guided_operator.api.base import ApiModel, ByName, LabelValue, text
from guided_operator.api.logits_processors import MAX_PARAMS_BYTES, MAX_PARAMS_DEPTH, is_too_large

_USER = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Labels = Annotated[dict[str, LabelValue], Field(max_length=32)]
_Annotations = Annotated[dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32)]
_OBJECT_NAME = Annotated[str, text(253)]
_ITEM_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LONGEST: Final = 59  # with "own-" before it, 63
_AS_WRITTEN: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SOURCES: Final = ("persistentVolumeClaim", "configMap", "secret", "emptyDir")  # of volumes


def _bounded(part: dict[str, Any]) -> dict[str, Any]:
    try:
        large = is_too_large(part)
    except TypeError as error:  # a date, for instance, which YAML has and JSON has not
        raise ValueError("must be JSON: quote what is text") from error
    if large:
        raise ValueError(
            f"is larger than {MAX_PARAMS_BYTES} bytes of JSON, "
            f"or nested deeper than {MAX_PARAMS_DEPTH} levels"
        )
    return part


def _named(part: dict[str, Any]) -> dict[str, Any]:
    name = part.get("name")
    if not isinstance(name, str) or not re.fullmatch(_ITEM_NAME[1:-1], name) or len(name) > _LONGEST:
        raise ValueError(f"name must match {_ITEM_NAME} and have at most {_LONGEST} characters")
    return part


Part = Annotated[dict[str, Any], AfterValidator(_bounded), WithJsonSchema(_AS_WRITTEN)]
NamedPart = Annotated[
    dict[str, Any],
    AfterValidator(_bounded),
    AfterValidator(_named),
    WithJsonSchema(
        {
            **_AS_WRITTEN,
            "required": ["name"],
            "properties": {
                "name": {
                    "type": "string",
                    "pattern": _ITEM_NAME,
                    "maxLength": _LONGEST,
                    "description": "Name of the item. Unique in the list.",
                }
            },
        }
    ),
]
Parts = Annotated[list[Part], Field(max_length=64)]
NamedParts = Annotated[ByName[NamedPart], Field(max_length=16)]


class SecretName(ApiModel):
    """A Secret in this namespace."""

    name: _OBJECT_NAME
    """Name of the Secret."""


class Pod(ApiModel):
    """Metadata, scheduling and volumes of the pods, in a pod's own words: kubectl explain pod.spec."""

    labels: _Labels = Field(default={})
    """Additional labels of the pods and of their Deployment or LeaderWorkerSet. Labels of guidedmodel.io,
    kubernetes.io and k8s.io are refused, because the operator and the cluster set them. Default: none."""
    annotations: _Annotations = Field(default={})
    """Annotations of the pods. Annotations of guidedmodel.io, kubernetes.io and k8s.io are refused, except
    cluster-autoscaler.kubernetes.io. Default: only
    cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes, with the operator's emptyDir volumes."""
    node_selector: _Labels = Field(default={})
    """Labels that a node must have. Default: none, any node."""
    tolerations: Parts = Field(default=[])
    """Same as pod.spec.tolerations. Default: none."""
    affinity: Part | None = None
    """Same as pod.spec.affinity. Default: none."""
    topology_spread_constraints: Parts = Field(default=[])
    """Same as pod.spec.topologySpreadConstraints. An item without labelSelector selects this model's pods of
    one revision. Default: none."""
    priority_class_name: _OBJECT_NAME | None = None
    """PriorityClass of the pods. Default: the cluster's default."""
    scheduler_name: _OBJECT_NAME | None = None
    """Scheduler of the pods. Default: default-scheduler."""
    runtime_class_name: _OBJECT_NAME | None = None
    """RuntimeClass of the pods, for GPU drivers that need one. Default: none."""
    service_account_name: _OBJECT_NAME | None = None
    """ServiceAccount of the pods, for admission policies and image pull secrets. Its token is not mounted.
    Default: a ServiceAccount of this model, without permissions."""
    image_pull_secrets: Annotated[ByName[SecretName], Field(max_length=16)] = Field(default=[])
    """Secrets for pulling images. Default: those of the ServiceAccount."""
    run_as_user: _USER | None = None
    """User and group ID of the pod's processes, never 0. Default: 10001, or unset if the operator leaves it
    to the platform, as on OpenShift."""
    fs_group: _USER | None = None
    """Group that owns the pod's volumes, if the volume type supports it. Set it if the pod's user cannot read
    a PersistentVolumeClaim. Default: none, ownership is not changed."""
    volumes: NamedParts = Field(default=[])
    """Same as pod.spec.volumes, of types persistentVolumeClaim, configMap, secret and emptyDir. Each is
    mounted in the engine container at /mnt/NAME. Default: none."""
    resource_claims: NamedParts = Field(default=[])
    """Same as pod.spec.resourceClaims. The engine container gets them in addition to its accelerators, for
    example network devices. Default: none."""

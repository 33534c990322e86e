"""What is said of the pods in a pod's own words: `spec.pod`.

The fields are the list of what may be said; no container is among them. What they hold is passed on as it is
written, and the API server judges it in the Deployment; `policy.pod_parts` refuses what nobody may have.
"""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from guided_operator.api.base import ApiModel, distinct, text, unique_names
from guided_operator.api.logits_processors import MAX_PARAMS_BYTES, MAX_PARAMS_DEPTH, is_too_large
from guided_operator.api.secret_refs import SecretName

_USER = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Labels = Annotated[dict[str, Annotated[str, text(63, least=0)]], Field(max_length=32)]
_Annotations = Annotated[dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32)]
_OBJECT_NAME = Annotated[str, text(253)]
_ITEM_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LONGEST: Final = 59  # with "own-" before it, 63
_AS_WRITTEN: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SOURCES: Final = ("persistentVolumeClaim", "configMap", "secret", "emptyDir")  # of volumes
_BY_NAME: Final[dict[str, Any]] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


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


def _distinct(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    distinct([part["name"] for part in parts])
    return parts


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
NamedParts = Annotated[list[NamedPart], Field(max_length=16), AfterValidator(_distinct)]


class Pod(ApiModel):
    """Metadata, scheduling and volumes of the pods, in a pod's own words: kubectl explain pod.spec."""

    labels: _Labels = Field(
        default={},
        description=(
            "Further labels of the pods and of their Deployment or LeaderWorkerSet. Labels of "
            "guidedmodel.io, kubernetes.io and k8s.io are refused: the operator and the cluster set them. "
            "Default: none."
        ),
    )
    annotations: _Annotations = Field(
        default={},
        description=(
            "Annotations of the pods. Annotations of guidedmodel.io, kubernetes.io and k8s.io are "
            "refused, except cluster-autoscaler.kubernetes.io. Default: none but "
            "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes, with the pods' own folders."
        ),
    )
    node_selector: _Labels = Field(
        default={}, description="Labels that a node must have. Default: none, any node."
    )
    tolerations: Parts = Field(
        default=[], description="As in a pod: kubectl explain pod.spec.tolerations. Default: none."
    )
    affinity: Part | None = Field(
        default=None, description="As in a pod: kubectl explain pod.spec.affinity. Default: none."
    )
    topology_spread_constraints: Parts = Field(
        default=[],
        description=(
            "As in a pod: kubectl explain pod.spec.topologySpreadConstraints. Of an item without "
            "labelSelector, it is this model's pods of one revision. Default: none."
        ),
    )
    priority_class_name: _OBJECT_NAME | None = Field(
        default=None, description="PriorityClass of the pods. Default: the cluster's default."
    )
    scheduler_name: _OBJECT_NAME | None = Field(
        default=None, description="Scheduler of the pods. Default: default-scheduler."
    )
    runtime_class_name: _OBJECT_NAME | None = Field(
        default=None,
        description="RuntimeClass of the pods, for GPU drivers that need one. Default: none.",
    )
    service_account_name: _OBJECT_NAME | None = Field(
        default=None,
        description=(
            "ServiceAccount of the pods, for admission policies and image pull secrets that depend on it."
            " Its token is not mounted. Default: a ServiceAccount of this model, without permissions."
        ),
    )
    image_pull_secrets: Annotated[list[SecretName], Field(max_length=16), AfterValidator(unique_names)] = (
        Field(
            default=[],
            description="Secrets for pulling images. Default: those of the ServiceAccount.",
            json_schema_extra=_BY_NAME,
        )
    )
    run_as_user: _USER | None = Field(
        default=None,
        description=(
            "Numeric user and group ID of the pod's processes, never 0. Default: 10001; unset where the "
            "operator leaves it to the platform, as on OpenShift."
        ),
    )
    fs_group: _USER | None = Field(
        default=None,
        description=(
            "Group that owns the pod's volumes, where their kind supports it. Set it for a claim that the"
            " pod's user cannot read otherwise. Default: none, the ownership of volumes is not changed."
        ),
    )
    volumes: NamedParts = Field(
        default=[],
        description=(
            "As in a pod: kubectl explain pod.spec.volumes. Each is mounted in the engine at /mnt/NAME. Only "
            "persistentVolumeClaim, configMap, secret and emptyDir. Default: none."
        ),
        json_schema_extra=_BY_NAME,
    )
    resource_claims: NamedParts = Field(
        default=[],
        description=(
            "As in a pod: kubectl explain pod.spec.resourceClaims. The engine gets them beside its "
            "accelerators: network devices, or a channel between nodes. Default: none."
        ),
        json_schema_extra=_BY_NAME,
    )
    dns_config: Part | None = Field(
        default=None, description="As in a pod: kubectl explain pod.spec.dnsConfig. Default: the cluster's."
    )
    host_aliases: Parts = Field(
        default=[], description="As in a pod: kubectl explain pod.spec.hostAliases. Default: none."
    )

"""Metadata, scheduling and volumes of the pods: `spec.pod`. It has no container spec."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, BytesBetween, ObjectName, text, unique_names
from guided_operator.api.pod_network import DnsConfig, HostAlias, unique_addresses
from guided_operator.api.resource_claims import ResourceClaims, claim_rules
from guided_operator.api.rule import Rule, cel_text, matches
from guided_operator.api.scheduling import Affinity, Labels, Toleration, TopologySpread, label_keys
from guided_operator.api.secret_refs import SecretName
from guided_operator.api.storage import Claim

_USER = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ClaimVolume(Claim):
    """A PersistentVolumeClaim in this namespace."""

    read_only: bool = Field(
        default=True,
        description="Whether to mount it read-only. Default: true, because replicas share it.",
    )


class ConfigMapVolume(ApiModel):
    """A ConfigMap in this namespace, one file per key."""

    name: ObjectName = Field(description="Name of the ConfigMap.")


class SecretVolume(ApiModel):
    """A Secret in this namespace, one file per key."""

    secret_name: ObjectName = Field(description="Name of the Secret.")


class EmptyVolume(ApiModel):
    """An empty folder that is deleted with the pod."""

    medium: Literal["Disk", "Memory"] = Field(
        default="Disk",
        description=(
            "Storage medium. Disk: the node's storage. Memory: a tmpfs, which counts as memory of the "
            "engine. Default: Disk."
        ),
    )
    size_limit: Annotated[str, BytesBetween("1Mi", "100Ti")] | None = Field(
        default=None, description="Maximum size; the kubelet evicts a pod that exceeds it. Default: none."
    )


class Volume(ApiModel):
    """A volume of the engine, mounted at /mnt/NAME. Exactly one source is set."""

    name: Annotated[str, text(40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="Name of the volume, and of its folder below /mnt. Unique in the list."
    )
    persistent_volume_claim: ClaimVolume | None = Field(
        default=None, description="Mount a PersistentVolumeClaim. Default: none."
    )
    config_map: ConfigMapVolume | None = Field(default=None, description="Mount a ConfigMap. Default: none.")
    secret: SecretVolume | None = Field(default=None, description="Mount a Secret. Default: none.")
    empty_dir: EmptyVolume | None = Field(default=None, description=("Mount an empty folder. Default: none."))


class Pod(ApiModel):
    """Metadata, scheduling and volumes of the pods."""

    labels: Labels = Field(
        default={},
        description=(
            "Further labels of the pods and of their Deployment or LeaderWorkerSet, for billing, service "
            "meshes, queues of Kueue and so on. Labels of guidedmodel.io, kubernetes.io and k8s.io are "
            "refused: the operator and the cluster set them. Default: none."
        ),
    )
    annotations: Annotated[
        dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32), AfterValidator(label_keys)
    ] = Field(
        default={},
        description=(
            "Annotations of the pods. Annotations of guidedmodel.io, kubernetes.io and k8s.io are "
            "refused, except cluster-autoscaler.kubernetes.io. Default: none but "
            "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes, with the pods' own folders."
        ),
    )
    node_selector: Labels = Field(
        default={}, description="Labels that a node must have. Default: none, any node."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(
        default=[], description="Tolerations of the pods for taints of nodes. Default: none."
    )
    affinity: Affinity | None = Field(
        default=None, description="Affinity of the pods to nodes and to other pods. Default: none."
    )
    topology_spread: Annotated[list[TopologySpread], Field(max_length=8)] = Field(
        default=[],
        description=(
            "How this model's pods of one revision are spread over nodes or zones. Default: none, which "
            "leaves it to the scheduler."
        ),
    )
    priority_class_name: ObjectName | None = Field(
        default=None,
        description=(
            "PriorityClass of the pods, which decides who is preempted when GPUs are short. Default: the "
            "cluster's default."
        ),
    )
    scheduler_name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = Field(
        default=None, description="Scheduler of the pods. Default: default-scheduler."
    )
    service_account_name: ObjectName | None = Field(
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
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
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
    volumes: Annotated[list[Volume], Field(max_length=16), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Further volumes of the engine, each mounted at /mnt/NAME, for chat templates, certificates "
            "or scratch space. Only PersistentVolumeClaims, ConfigMaps, Secrets and empty folders. "
            "Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    resource_claims: ResourceClaims = Field(
        default=[],
        description=(
            "ResourceClaims of the pod, for the engine, beside its accelerators: network devices, or a "
            "channel between nodes. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    dns_config: DnsConfig | None = Field(
        default=None,
        description="DNS settings of the pods, beside those of the cluster. Default: the cluster's.",
    )
    host_aliases: Annotated[list[HostAlias], Field(max_length=32), AfterValidator(unique_addresses)] = Field(
        default=[],
        description="Further lines of the pods' /etc/hosts. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["ip"]},
    )


# Whose labels and annotations decide what a pod may do, and which pods are this model's.
_OURS: Final = r"^([-a-z0-9.]+\.)?(guidedmodel\.io|kubernetes\.io|k8s\.io)/"
_HARMLESS: Final = r"^cluster-autoscaler\.kubernetes\.io/"
_KINDS: Final = ("persistent_volume_claim", "config_map", "secret", "empty_dir")
_KINDS_CEL: Final = " + ".join(
    f"(has(self.{kind}) ? 1 : 0)" for kind in ("persistentVolumeClaim", "configMap", "secret", "emptyDir")
)


def _reserved(keys: dict[str, str]) -> bool:
    return any(matches(_OURS, key) and not matches(_HARMLESS, key) for key in keys)


def _reserved_rule(part: str, read: Any) -> Rule:
    return Rule(
        ("spec", "pod"),
        part,
        "keys of guidedmodel.io, kubernetes.io and k8s.io are reserved for the operator and the "
        "cluster (except cluster-autoscaler.kubernetes.io)",
        f"!has(self.{part}) || self.{part}.all(k, !k.matches({cel_text(_OURS)}) || "
        f"k.matches({cel_text(_HARMLESS)}))",
        lambda template: _reserved(read(template)),
    )


POD_RULES: Final = (
    *claim_rules(("spec", "pod", "resourceClaims")),
    _reserved_rule("labels", lambda template: template.labels),
    _reserved_rule("annotations", lambda template: template.annotations),
    Rule(
        ("spec", "pod", "volumes", "*"),
        "",
        "exactly one of persistentVolumeClaim, configMap, secret and emptyDir must be set",
        f"{_KINDS_CEL} == 1",
        lambda volume: sum(getattr(volume, kind) is not None for kind in _KINDS) != 1,
    ),
    Rule(
        ("spec", "pod", "tolerations", "*"),
        "",
        "operator Exists must have no value, operator Equal needs a key, and tolerationSeconds "
        "needs effect NoExecute",
        "(!has(self.operator) || self.operator == 'Equal' ? has(self.key) : !has(self.value)) && "
        "(!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute'))",
        lambda one: (
            (one.key is None if one.operator == "Equal" else one.value is not None)
            or (one.toleration_seconds is not None and one.effect != "NoExecute")
        ),
    ),
    Rule(
        ("spec", "pod", "topologySpread", "*"),
        "minDomains",
        "may be set only if whenUnsatisfiable is DoNotSchedule",
        "!has(self.minDomains) || !has(self.whenUnsatisfiable) || self.whenUnsatisfiable == 'DoNotSchedule'",
        lambda spread: spread.min_domains is not None and spread.when_unsatisfiable != "DoNotSchedule",
    ),
)

"""What a user may say of pods beside the model: `spec.podTemplate`. No free container spec."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, BytesBetween, text, unique_names
from guided_operator.api.rule import Rule, cel_text, matches
from guided_operator.api.scheduling import Affinity, Labels, Toleration, TopologySpread, label_keys
from guided_operator.api.secret_refs import SecretName

_OBJECT = Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
_USER = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim of this namespace."""

    claim_name: _OBJECT = Field(description="Its name.")
    read_only: bool = Field(
        default=True,
        description="Whether it is mounted for reading only. Default: true, since replicas share it.",
    )


class ConfigMapVolume(ApiModel):
    """A ConfigMap of this namespace, a file for each key."""

    name: _OBJECT = Field(description="Its name.")


class SecretVolume(ApiModel):
    """A Secret of this namespace, a file for each key."""

    secret_name: _OBJECT = Field(description="Its name.")


class EmptyVolume(ApiModel):
    """An empty folder that ends with the pod."""

    medium: Literal["Disk", "Memory"] = Field(
        default="Disk",
        description="Disk: the node's storage. Memory: counts as the engine's memory. Default: Disk.",
    )
    size_limit: Annotated[str, BytesBetween("1Mi", "100Ti")] | None = Field(
        default=None, description="Past it the kubelet evicts the pod. Default: none."
    )


class Volume(ApiModel):
    """One more volume, which the engine sees as the folder /mnt/NAME. Exactly one kind is set."""

    name: Annotated[str, text(40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="Name of the folder below /mnt; unique in the list."
    )
    persistent_volume_claim: ClaimVolume | None = Field(
        default=None, description="A PersistentVolumeClaim. Default: none."
    )
    config_map: ConfigMapVolume | None = Field(default=None, description="A ConfigMap. Default: none.")
    secret: SecretVolume | None = Field(default=None, description="A Secret. Default: none.")
    empty_dir: EmptyVolume | None = Field(default=None, description="An empty folder. Default: none.")


class PodTemplate(ApiModel):
    """What pods have beside the model."""

    labels: Labels = Field(
        default={},
        description=(
            "More labels of pods, for billing, meshes and the like. Default: none. Not of guidedmodel.io or "
            "kubernetes.io, which the operator and the cluster set."
        ),
    )
    annotations: Annotated[
        dict[str, Annotated[str, text(4096, least=0)]], Field(max_length=32), AfterValidator(label_keys)
    ] = Field(
        default={},
        description=(
            "Annotations of pods. Default: none. Not of guidedmodel.io or kubernetes.io, but for "
            "cluster-autoscaler.kubernetes.io."
        ),
    )
    node_selector: Labels = Field(
        default={}, description="Labels that a node must have. Default: none, any node."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(
        default=[], description="Taints of nodes that pods put up with. Default: none."
    )
    affinity: Affinity | None = Field(
        default=None, description="Nodes and other pods to be near or far. Default: none."
    )
    topology_spread: Annotated[list[TopologySpread], Field(max_length=8)] = Field(
        default=[],
        description=(
            "How this model's pods, those of one revision, are spread over nodes or zones. Default: none, "
            "as the scheduler does by itself."
        ),
    )
    priority_class_name: _OBJECT | None = Field(
        default=None,
        description="PriorityClass of pods: who goes first when GPUs are short. Default: the cluster's own.",
    )
    scheduler_name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] | None = Field(
        default=None, description="The scheduler that places pods. Default: default-scheduler, the cluster's."
    )
    service_account_name: _OBJECT | None = Field(
        default=None,
        description=(
            "ServiceAccount of pods, for what hangs on its name: admission policies, pull secrets. No token "
            "of it is mounted. Default: one of the model's own, without any right."
        ),
    )
    image_pull_secrets: Annotated[list[SecretName], Field(max_length=16), AfterValidator(unique_names)] = (
        Field(
            default=[],
            description="Secrets that images are pulled with. Default: those of the ServiceAccount.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    )
    run_as_user: _USER | None = Field(
        default=None,
        description=(
            "Numeric user, and group, of the pod's processes, never 0. Default: 10001, no user of the image "
            "or, likely, of the node; none where the operator leaves it to the platform, as on OpenShift."
        ),
    )
    fs_group: _USER | None = Field(
        default=None,
        description=(
            "Group that volumes are made to belong to, where their kind allows it: for a claim that the "
            "pod's user cannot read otherwise. Default: none, volumes stay as they are."
        ),
    )
    volumes: Annotated[list[Volume], Field(max_length=16), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "More volumes of the engine, each as the folder /mnt/NAME: chat templates, certificates, scratch "
            "space. Claims, ConfigMaps, Secrets and empty folders only. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
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
        ("spec", "podTemplate"),
        part,
        "keys of guidedmodel.io, kubernetes.io and k8s.io are set by the operator and the cluster "
        "(cluster-autoscaler.kubernetes.io aside)",
        f"!has(self.{part}) || self.{part}.all(k, !k.matches({cel_text(_OURS)}) || "
        f"k.matches({cel_text(_HARMLESS)}))",
        lambda template: _reserved(read(template)),
    )


POD_TEMPLATE_RULES: Final = (
    _reserved_rule("labels", lambda template: template.labels),
    _reserved_rule("annotations", lambda template: template.annotations),
    Rule(
        ("spec", "podTemplate", "volumes", "*"),
        "",
        "exactly one of persistentVolumeClaim, configMap, secret and emptyDir must be set",
        f"{_KINDS_CEL} == 1",
        lambda volume: sum(getattr(volume, kind) is not None for kind in _KINDS) != 1,
    ),
    Rule(
        ("spec", "podTemplate", "tolerations", "*"),
        "",
        "operator Exists has no value, operator Equal needs a key, and tolerationSeconds effect NoExecute",
        "(!has(self.operator) || self.operator == 'Equal' ? has(self.key) : !has(self.value)) && "
        "(!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute'))",
        lambda one: (
            (one.key is None if one.operator == "Equal" else one.value is not None)
            or (one.toleration_seconds is not None and one.effect != "NoExecute")
        ),
    ),
    Rule(
        ("spec", "podTemplate", "topologySpread", "*"),
        "minDomains",
        "only where whenUnsatisfiable is DoNotSchedule",
        "!has(self.minDomains) || !has(self.whenUnsatisfiable) || self.whenUnsatisfiable == 'DoNotSchedule'",
        lambda spread: spread.min_domains is not None and spread.when_unsatisfiable != "DoNotSchedule",
    ),
)

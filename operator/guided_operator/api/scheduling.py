"""Where pods may run, as Kubernetes' own pods say it: parts of `spec.pod`."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.rule import matches

_LONGEST: Final = 317  # a domain of 253 characters, a slash, a name of 63
LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


def label_keys(labels: dict[str, Any]) -> dict[str, Any]:
    """Refuse keys that are none; a structural schema has no word for the keys of a map.

    Raises
    ------
    ValueError
        A key is no label's.
    """
    wrong = [key for key in labels if not matches(LABEL_KEY, key) or len(key) > _LONGEST]
    if wrong:
        raise ValueError(f'"{wrong[0]}" is no key such as "team" or "example.com/team" (name: at most 63)')
    return labels


LabelKey = Annotated[str, text(_LONGEST, pattern=LABEL_KEY)]
LabelValue = Annotated[str, text(63, least=0, pattern=LABEL_VALUE)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=32), AfterValidator(label_keys)]
_Values = Annotated[list[LabelValue], Field(max_length=64)]


class LabelRequirement(ApiModel):
    """A condition on one label of a pod or namespace."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared with values."
    )
    values: _Values = Field(default=[], description=("Values for the operators In and NotIn. Default: none."))


class LabelSelector(ApiModel):
    """A label selector; all conditions must be met."""

    match_labels: Labels = Field(
        default={}, description="Labels that must be present with these values. Default: none."
    )
    match_expressions: Annotated[list[LabelRequirement], Field(max_length=32)] = Field(
        default=[], description="Conditions on labels. Default: none."
    )


class NodeRequirement(ApiModel):
    """A condition on one label of a node."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How the label is compared with values."
    )
    values: _Values = Field(
        default=[],
        description="Values for the operators In and NotIn; one number for Gt and Lt. Default: none.",
    )


class NodeSelectorTerm(ApiModel):
    """Conditions on a node; all must be met."""

    match_expressions: Annotated[list[NodeRequirement], Field(min_length=1, max_length=32)] = Field(
        description="Conditions on the node's labels."
    )


class NodeSelector(ApiModel):
    """Terms that select nodes; a node must match at least one."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1, max_length=32)] = Field(
        description="Node selector terms; a node must match at least one."
    )


class PreferredNode(ApiModel):
    """A weighted preference for nodes."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(
        description="Weight of this preference among the others."
    )
    preference: NodeSelectorTerm = Field(description="Nodes that are preferred.")


class NodeAffinity(ApiModel):
    """Nodes that pods must or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes that pods may be scheduled on. Default: any."
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredNode], Field(max_length=32)
    ] = Field(default=[], description="Nodes that are preferred. Default: none.")


class PodAffinityTerm(ApiModel):
    """A set of other pods, and the topology in which they count as near."""

    label_selector: LabelSelector | None = Field(
        default=None, description=("Label selector of the other pods. Default: none, which matches no pods.")
    )
    topology_key: LabelKey = Field(
        description="Node label whose value defines the topology domain, such as kubernetes.io/hostname."
    )
    namespaces: Annotated[list[Annotated[str, text(63)]], Field(max_length=32)] = Field(
        default=[], description="Namespaces of the other pods. Default: this namespace."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Label selector of the namespaces of the other pods. Default: none."
    )


class PreferredPods(ApiModel):
    """A weighted preference for or against nodes near other pods."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(
        description="Weight of this preference among the others."
    )
    pod_affinity_term: PodAffinityTerm = Field(description="The other pods.")


class PodAffinity(ApiModel):
    """Other pods that pods must or should run near to, or away from."""

    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm], Field(max_length=32)
    ] = Field(default=[], description="Rules that must be met. Default: none.")
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredPods], Field(max_length=32)
    ] = Field(default=[], description="Rules that should be met. Default: none.")


class Affinity(ApiModel):
    """Scheduling constraints by labels of nodes and of other pods."""

    node_affinity: NodeAffinity | None = Field(
        default=None, description="Affinity to nodes. Default: any node."
    )
    pod_affinity: PodAffinity | None = Field(
        default=None, description="Other pods to run near to. Default: none."
    )
    pod_anti_affinity: PodAffinity | None = Field(
        default=None, description="Other pods to stay away from. Default: none."
    )


class Toleration(ApiModel):
    """A toleration for taints of nodes."""

    key: LabelKey | None = Field(
        default=None, description="Key of the taint. Default: every key, which needs operator Exists."
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal",
        description="Equal: the taint must have this value. Exists: any value matches. Default: Equal.",
    )
    value: LabelValue | None = Field(default=None, description='Value of the taint. Default: "".')
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. Default: every effect."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        default=None,
        description=(
            "With effect NoExecute, how long a pod stays after the taint was added, in seconds. Default: "
            "for ever."
        ),
    )


class TopologySpread(ApiModel):
    """A topology spread constraint for this model's pods."""

    topology_key: LabelKey = Field(
        description=(
            "Node label whose value defines the topology domain, such as topology.kubernetes.io/zone."
        )
    )
    max_skew: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="Maximum difference in the number of pods between topology domains. Default: 1.",
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description=(
            "What to do with a pod that cannot be placed within maxSkew. DoNotSchedule: it stays pending."
            " ScheduleAnyway: it is scheduled where the skew is smallest. Default: DoNotSchedule."
        ),
    )
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description=("Minimum number of topology domains. Only with DoNotSchedule. Default: 1.")
    )

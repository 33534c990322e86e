"""Where pods may run, as Kubernetes' own pods say it: parts of `spec.podTemplate`."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.rule import matches

_LONGEST: Final = 317  # a domain of 253 characters, a slash, a name of 63
LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
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
        raise ValueError(f'"{wrong[0]}" is no key such as "team" or "example.com/team"')
    return labels


LabelKey = Annotated[str, text(_LONGEST, pattern=LABEL_KEY)]
LabelValue = Annotated[str, text(63, least=0, pattern=LABEL_VALUE)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=32), AfterValidator(label_keys)]
_Values = Annotated[list[LabelValue], Field(max_length=64)]


class LabelRequirement(ApiModel):
    """A demand on one label of a pod or namespace."""

    key: LabelKey = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How values are compared.")
    values: _Values = Field(default=[], description="Values, for In and NotIn. Default: none.")


class LabelSelector(ApiModel):
    """Chooses objects by labels; all demands must hold."""

    match_labels: Labels = Field(default={}, description="Labels that must be there. Default: none.")
    match_expressions: Annotated[list[LabelRequirement], Field(max_length=32)] = Field(
        default=[], description="Demands on labels. Default: none."
    )


class NodeRequirement(ApiModel):
    """A demand on one label of a node."""

    key: LabelKey = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How values are compared."
    )
    values: _Values = Field(
        default=[], description="Values, for In, NotIn, and one number for Gt and Lt. Default: none."
    )


class NodeSelectorTerm(ApiModel):
    """Demands on a node; all must hold."""

    match_expressions: Annotated[list[NodeRequirement], Field(min_length=1, max_length=32)] = Field(
        description="Demands on labels."
    )


class NodeSelector(ApiModel):
    """Demands on a node, of which one term must hold."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1, max_length=32)] = Field(
        description="The terms."
    )


class PreferredNode(ApiModel):
    """A wish for a node."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(description="What the wish counts beside others.")
    preference: NodeSelectorTerm = Field(description="The node wished for.")


class NodeAffinity(ApiModel):
    """Which nodes pods may, or had better, run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes that pods may run on. Default: any."
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredNode], Field(max_length=32)
    ] = Field(default=[], description="Nodes that are preferred. Default: none.")


class PodAffinityTerm(ApiModel):
    """Other pods, and how near."""

    label_selector: LabelSelector | None = Field(
        default=None, description="The other pods. Default: none matches."
    )
    topology_key: LabelKey = Field(
        description="Label of nodes that are one place, such as kubernetes.io/hostname."
    )
    namespaces: Annotated[list[Annotated[str, text(63)]], Field(max_length=32)] = Field(
        default=[], description="Namespaces of the other pods. Default: this one."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces of the other pods, by label. Default: none."
    )


class PreferredPods(ApiModel):
    """A wish for, or against, other pods nearby."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(description="What the wish counts beside others.")
    pod_affinity_term: PodAffinityTerm = Field(description="The pods.")


class PodAffinity(ApiModel):
    """Which pods must, or had better, be near or far."""

    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm], Field(max_length=32)
    ] = Field(default=[], description="What must hold. Default: nothing.")
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredPods], Field(max_length=32)
    ] = Field(default=[], description="What is preferred. Default: nothing.")


class Affinity(ApiModel):
    """Where pods run, by labels of nodes and of other pods."""

    node_affinity: NodeAffinity | None = Field(
        default=None, description="By labels of nodes. Default: any node."
    )
    pod_affinity: PodAffinity | None = Field(
        default=None, description="Near which other pods. Default: any place."
    )
    pod_anti_affinity: PodAffinity | None = Field(
        default=None, description="Far from which other pods. Default: any place."
    )


class Toleration(ApiModel):
    """A taint of nodes that pods put up with."""

    key: LabelKey | None = Field(
        default=None, description="The taint's key. Default: every key, with operator Exists."
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="Exists: whatever the taint's value. Default: Equal, as in a pod."
    )
    value: LabelValue | None = Field(default=None, description='The taint\'s value. Default: "".')
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect. Default: every effect."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        default=None,
        description="With NoExecute, how long a pod stays after the taint came, in seconds. Default: ever.",
    )


class TopologySpread(ApiModel):
    """How evenly this model's pods are spread."""

    topology_key: LabelKey = Field(
        description="Label of nodes that are one place, such as topology.kubernetes.io/zone."
    )
    max_skew: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="By how many pods places may differ. Default: 1."
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description="What follows where it cannot be held. Default: DoNotSchedule, the pod waits.",
    )
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="How many places there must be. Only with DoNotSchedule. Default: 1."
    )

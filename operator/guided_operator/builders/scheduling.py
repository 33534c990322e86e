"""Where a pod may run, and how it finds others: parts of `spec.pod` in the words of a pod."""

from typing import Any

from kubernetes.aio import client as k8s

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.api.base import ApiModel
from guided_operator.api.scheduling import TopologySpread
from guided_operator.builders.labels import selector


def fields(gm: GuidedModel) -> dict[str, Any]:
    """Return the fields of a pod's spec that the user has as a pod has them; None: as the cluster has it."""
    own = gm.spec.pod
    return {
        "node_selector": own.node_selector or None,
        "tolerations": [k8s.V1Toleration.model_validate(_plain(one)) for one in own.tolerations] or None,
        "affinity": k8s.V1Affinity.model_validate(_plain(own.affinity)) if own.affinity else None,
        "topology_spread_constraints": [_spread(gm, one) for one in own.topology_spread] or None,
        "priority_class_name": own.priority_class_name,
        "scheduler_name": own.scheduler_name,
        "dns_config": k8s.V1PodDNSConfig.model_validate(_plain(own.dns_config)) if own.dns_config else None,
        "host_aliases": [k8s.V1HostAlias.model_validate(_plain(one)) for one in own.host_aliases] or None,
    }


def _plain(part: ApiModel) -> dict[str, Any]:
    """Return a part that has Kubernetes' own names as a manifest has it, without empty parts."""
    return part.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)


def _spread(gm: GuidedModel, spread: TopologySpread) -> k8s.V1TopologySpreadConstraint:
    return k8s.V1TopologySpreadConstraint(
        topology_key=spread.topology_key,
        max_skew=spread.max_skew,
        when_unsatisfiable=spread.when_unsatisfiable,
        min_domains=spread.min_domains,
        label_selector=k8s.V1LabelSelector(match_labels=selector(gm)),
        # Else the pods of the revision that goes would count, and the new ones stand uneven after a rollout.
        match_label_keys=[names.LABEL_REVISION],
    )

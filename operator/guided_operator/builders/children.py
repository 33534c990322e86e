"""The children of a GuidedModel, one builder per kind."""

from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders import grammars
from guided_operator.builders.configuration import config_file, config_file_name
from guided_operator.builders.grammars import NO_SOURCES, Sources
from guided_operator.builders.key import pod_key
from guided_operator.builders.labels import metadata, selector
from guided_operator.builders.pod import pod_template
from guided_operator.builders.site import Site

# On top of startupTimeout: pulling an image of some 10 GB.
_PULL_S: Final = 1200


@dataclass(frozen=True, slots=True)
class Children:
    """All that a GuidedModel owns, as typed objects of the Kubernetes client."""

    service_account: k8s.V1ServiceAccount
    config_map: k8s.V1ConfigMap
    grammars: k8s.V1ConfigMap
    service: k8s.V1Service
    deployment: k8s.V1Deployment

    def manifests(self) -> list[dict[str, Any]]:
        """Return them as plain objects, in an order in which they can be created."""
        children = (self.service_account, self.config_map, self.grammars, self.service, self.deployment)
        return [manifest(child) for child in children]


def manifest(child: Any) -> dict[str, Any]:
    """Return a typed object as the plain one that the API server takes: camelCase, nothing that is unset."""
    plain: dict[str, Any] = child.model_dump(by_alias=True, exclude_none=True)
    return plain


def render(gm: GuidedModel, site: Site, sources: Sources = NO_SOURCES) -> Children:
    """Return what the model's children should be; pure: the same for the same input.

    `sources`: the ConfigMaps of its named grammars.

    Children of a model without a uid have no owner: for looking at, and for local runs.
    """
    config_map = _config_map(gm, site)
    return Children(
        service_account=_service_account(gm),
        config_map=config_map,
        grammars=grammars.config_map(gm, grammars.merge(gm, sources, {}).data),
        service=_service(gm, site),
        deployment=_deployment(gm, site, config_map.metadata.name),
    )


def url(gm: GuidedModel, site: Site) -> str:
    """Return where clients in the cluster find the OpenAI API, without /v1."""
    return f"http://{gm.name}.{gm.namespace}.svc:{site.ports.engine}"


def _service_account(gm: GuidedModel) -> k8s.V1ServiceAccount:
    return k8s.V1ServiceAccount(
        api_version="v1",
        kind="ServiceAccount",
        metadata=metadata(gm),
        automount_service_account_token=False,
    )


def _config_map(gm: GuidedModel, site: Site) -> k8s.V1ConfigMap:
    # Named by revision: a pod of the old revision that restarts in the middle of a rollout must find the
    # configuration that belongs to its arguments.
    return k8s.V1ConfigMap(
        api_version="v1",
        kind="ConfigMap",
        metadata=metadata(gm, f"{gm.name}-{pod_key(gm)}"),
        data={config_file_name(site): config_file(gm, site)},
    )


def _service(gm: GuidedModel, site: Site) -> k8s.V1Service:
    port = k8s.V1ServicePort(
        name="http", port=site.ports.engine, target_port=site.ports.engine, protocol="TCP"
    )
    return k8s.V1Service(
        api_version="v1",
        kind="Service",
        metadata=metadata(gm),
        spec=k8s.V1ServiceSpec(selector=selector(gm), ports=[port]),
    )


def _deployment(gm: GuidedModel, site: Site, config_map: str) -> k8s.V1Deployment:
    deadline_s = ceil(seconds(gm.spec.probes.startup_timeout)) + _PULL_S
    return k8s.V1Deployment(
        api_version="apps/v1",
        kind="Deployment",
        metadata=metadata(gm),
        spec=k8s.V1DeploymentSpec(
            replicas=gm.spec.replicas,
            selector=k8s.V1LabelSelector(match_labels=selector(gm)),
            # Never fewer pods than asked for: the new one has to answer before an old one goes.
            strategy=k8s.V1DeploymentStrategy(
                type="RollingUpdate",
                rolling_update=k8s.V1RollingUpdateDeployment(max_surge=1, max_unavailable=0),
            ),
            revision_history_limit=1,  # rollback is the operator's, by ControllerRevision
            progress_deadline_seconds=deadline_s,
            template=pod_template(gm, site, config_map),
        ),
    )

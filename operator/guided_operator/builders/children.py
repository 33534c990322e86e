"""The children of a GuidedModel, put together; one builder per kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.builders import grammars, monitoring
from guided_operator.builders.configuration import config_file, config_file_name
from guided_operator.builders.disruption_budget import disruption_budget
from guided_operator.builders.grammars import NO_SOURCES, Sources
from guided_operator.builders.labels import metadata
from guided_operator.builders.network_policy import network_policy
from guided_operator.builders.objects import manifest
from guided_operator.builders.own_parts import with_own_parts
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from guided_operator.builders.service import headless_service, service
from guided_operator.builders.workload import is_grouped, workload

Object = dict[str, Any]


@dataclass(frozen=True)
class Children:
    """What a GuidedModel's pods are made of, and what stands around them; each part is made when asked for.

    `config_map` and `template` are of `model`'s revision. `before` is what pods need to be there, `after`
    what looks after them. `sources`: the ConfigMaps of its named grammars.
    """

    model: GuidedModel
    site: Site
    sources: Sources = field(default_factory=dict)

    @cached_property
    def config_map(self) -> k8s.V1ConfigMap:
        """The configuration file of launcher and sidecar."""
        data = {config_file_name(self.site): config_file(self.model, self.site)}
        return config_map(self.model, pod_key(self.model), data)

    @cached_property
    def template(self) -> k8s.V1PodTemplateSpec:
        """The pods, as the operator makes them."""
        return pod_template(self.model, self.site, self.config_map.metadata.name)

    @cached_property
    def pods(self) -> Object:
        """The pods' template as it is applied, with what the user says in a pod's own words."""
        return with_own_parts(self.model, manifest(self.template))

    @cached_property
    def grammars(self) -> k8s.V1ConfigMap:
        """The named grammars' texts."""
        return grammars.config_map(self.model, grammars.merge(self.model, self.sources, {}).data)

    @cached_property
    def before(self) -> tuple[Object, ...]:
        """What is there before the pods."""
        return _present(
            manifest(_service_account(self.model)),
            network_policy(self.model, self.site),
            manifest(headless_service(self.model)) if is_grouped(self.model) else None,
            manifest(service(self.model, self.site)),
        )

    @cached_property
    def after(self) -> tuple[Object, ...]:
        """What comes after the pods."""
        return _present(
            manifest(disruption_budget(self.model)),
            monitoring.pod_monitor(self.model),
        )

    def manifests(self) -> list[Object]:
        """Return them as plain objects, in an order in which they can be created."""
        pods = workload(self.model, self.pods, self.model.spec.replicas)
        maps = (manifest(self.config_map), manifest(self.grammars))
        return [*self.before, *maps, pods, *self.after]


def render(gm: GuidedModel, site: Site, sources: Sources = NO_SOURCES) -> Children:
    """Return what the model's children should be; pure: the same for the same input.

    Children of a model without a uid have no owner reference (`guidedmodel render` and `run`). `sources` is
    the data of the ConfigMaps that hold named grammars, by name.
    """
    return Children(gm, site, sources)


def url(namespace: str, name: str, site: Site) -> str:
    """Return the URL of the OpenAI API within the cluster, without /v1."""
    return f"http://{name}.{namespace}.svc:{site.ports.engine}"


def _present(*objects: Object | None) -> tuple[Object, ...]:
    return tuple(each for each in objects if each is not None)


def _service_account(gm: GuidedModel) -> k8s.V1ServiceAccount:
    return k8s.V1ServiceAccount(
        api_version="v1",
        kind="ServiceAccount",
        metadata=metadata(gm),
        automount_service_account_token=False,
    )


def config_map(gm: GuidedModel, key: str, data: Mapping[str, str]) -> k8s.V1ConfigMap:
    """Return the ConfigMap with the configuration file of the revision `key`; `data` by file name."""
    # Named by revision: a pod of the old revision that restarts in the middle of a rollout must find the
    # configuration that belongs to its arguments.
    return k8s.V1ConfigMap(
        api_version="v1", kind="ConfigMap", metadata=metadata(gm, f"{gm.name}-{key}"), data=dict(data)
    )

"""The kinds that the operator uses: where each is served, and what is kept of an object."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import names
from guided_operator.kube import pod_view

Object = dict[str, Any]
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
)
_IDENTITY: Final = ("name", "namespace", "uid")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object.

    `fields` are the top-level fields that are kept beside the metadata; `view` replaces the projection.
    Of what is no GuidedModel's, no more is kept than whom it is named after.
    `selector` says by labels which objects are looked at, "": all.
    `optional`: somebody has to install its API, which may come and go. `pruned`: an object that is no longer
    wanted is deleted. `auxiliary`: it stands beside the pods, which serve without it.
    """

    name: str
    api_version: str
    plural: str
    fields: tuple[str, ...] = ()
    view: Callable[[Object], Any] | None = None
    selector: str = names.LABEL_NAME
    optional: bool = False
    pruned: bool = False
    auxiliary: bool = False

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of an object; see `api_path`."""
        return api_path(self.api_version, self.plural, namespace, name)

    @property
    def group_path(self) -> str:
        """Return the path at which the API server says which kinds there are of its API."""
        return f"/apis/{self.api_version}"

    def project(self, item: Object) -> Any:
        """Return what is kept of an object: a view, or the object cut down to the fields in use.

        Two that are equal are the same to every decision.
        """
        if self.view is not None:
            return self.view(item)
        metadata = item["metadata"]
        kept: Object = {"apiVersion": self.api_version, "kind": self.name}
        if self.selector and not self._belongs(metadata):  # that its name is taken is all that matters
            return {**kept, "metadata": {field: metadata[field] for field in _IDENTITY}}
        kept["metadata"] = {field: metadata[field] for field in _METADATA if field in metadata}
        kept |= {field: item[field] for field in self.fields if field in item}
        return kept

    def _belongs(self, metadata: Object) -> bool:
        references: Sequence[Object] = metadata.get("ownerReferences", ())
        return any(each.get("controller") and each["kind"] == names.KIND for each in references)


def is_owned(item: Object, owner_uid: str) -> bool:
    """Return whether an object's controller is the GuidedModel with this uid."""
    references: Sequence[Object] = item["metadata"].get("ownerReferences", ())
    return any(each.get("controller") and each["uid"] == owner_uid for each in references)


def api_path(api_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of a resource on the API server.

    `plural` is the resource's name in paths, such as "pods". An empty `name` gives the collection, an empty
    `namespace` the cluster's.
    """
    root = "/api/" if "/" not in api_version else "/apis/"
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{api_version}{scope}/{plural}" + (f"/{name}" if name else "")


def model_path(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of a GuidedModel."""
    return MODEL.path(namespace, name) + (f"/{subresource}" if subresource else "")


MODEL: Final = Kind(
    names.KIND,
    f"{names.API_GROUP}/{names.API_VERSION}",
    names.PLURAL,
    ("spec", "status"),
    selector="",
)
DEPLOYMENT: Final = Kind("Deployment", "apps/v1", "deployments", ("spec", "status"))
SERVICE: Final = Kind("Service", "v1", "services", ("spec",))
CONFIG_MAP: Final = Kind("ConfigMap", "v1", "configmaps", ("data",))
SERVICE_ACCOUNT: Final = Kind("ServiceAccount", "v1", "serviceaccounts", ("automountServiceAccountToken",))
REVISION: Final = Kind("ControllerRevision", "apps/v1", "controllerrevisions", ("data", "revision"))
DISRUPTION_BUDGET: Final = Kind(
    "PodDisruptionBudget", "policy/v1", "poddisruptionbudgets", ("spec",), auxiliary=True
)
NETWORK_POLICY: Final = Kind(
    "NetworkPolicy", "networking.k8s.io/v1", "networkpolicies", ("spec",), pruned=True
)
WORKER_SET: Final = Kind(
    "LeaderWorkerSet",
    "leaderworkerset.x-k8s.io/v1",
    "leaderworkersets",
    ("spec", "status"),
    optional=True,
)
POD_MONITOR: Final = Kind(
    "PodMonitor",
    "monitoring.coreos.com/v1",
    "podmonitors",
    ("spec",),
    optional=True,
    pruned=True,
    auxiliary=True,
)
POD: Final = Kind("Pod", "v1", "pods", view=pod_view.view)

# Children whose changes are told by a watch; pods among them, which their controllers make.
WATCHED: Final = (
    DEPLOYMENT,
    SERVICE,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    WORKER_SET,
    POD,
)
# Those that hardly anybody changes, or that hold too much to be listed, are read in a pass: where what there
# is decides on what should be, when it begins; the others by name, before they are written.
OBSERVED: Final = (REVISION, POD_MONITOR)
READ: Final = (CONFIG_MAP, SERVICE_ACCOUNT)
CHILDREN: Final = (*WATCHED, *OBSERVED, *READ)
OPTIONAL: Final = tuple(kind for kind in CHILDREN if kind.optional)
WORKLOADS: Final = (DEPLOYMENT, WORKER_SET)  # what makes the pods
# A Deployment's own, looked at only while its rollout turns.
REPLICA_SETS: Final = "replicasets"
BY_NAME: Final[Mapping[str, Kind]] = {kind.name: kind for kind in CHILDREN}

"""Where a pod's containers run: in a pod of a cluster, or as processes of a laptop."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from guided_contract.config import PortsConfig
from guided_operator.api.model import MODELS_DIR

# Where the operator's image holds plugin, contract and sidecar with their dist-info, ready to be copied.
PLUGIN_SOURCE: Final = "/opt/guidedmodel/plugin"
USER_ID: Final = 10001  # no user of the image or, likely, of the node


def _claim_folder(claim: str) -> str:
    return f"{MODELS_DIR}/{claim}"


@dataclass(frozen=True, slots=True)
class Site:
    """Paths and addresses as the containers see them. The defaults are those of a pod.

    Parameters
    ----------
    plugin_image
        Our own image, which the init container copies the plugin from.
    plugin_pull_policy
        When a node pulls it; "": as Kubernetes does by its tag.
    pull_secrets
        Secrets that every pod pulls images with, beside its own.
    operator_namespace
        Where the operator reads the pods' status from.
    python
        The interpreter that runs launcher and sidecar.
    run_dir
        Folder of sockets and heartbeats that engine and sidecar share.
    config_path
        The configuration file.
    named_grammars
        Folder of the named grammars' files.
    plugin_dir
        Folder that plugin and sidecar are imported from; "" where they already can be.
    home
        Home of both processes, for caches and temporary files; "" leaves the user's own.
    hub
        Folder of what is downloaded from the hub; "" leaves the user's own.
    cache
        Folder of the claim with the engine's compile caches; "" leaves the user's own.
    models
        From a claim's name to the folder with its content.
    own_volumes
        Folder of the user's own volumes.
    bind_host
        Address that engine and sidecar listen on.
    ports
        Their ports.
    endpoint_lag_s
        Seconds for which requests may still arrive after a pod was removed from its Service, until every
        proxy knows. None: there is no Service, and a pod stops at once.
    user_id
        User and group of the containers where the resource names none; None leaves them to the platform.
    hub_endpoint
        URL of a mirror of the Hugging Face hub; "": the hub itself.
    otlp_endpoint
        Where traces go over HTTP instead of where the resource says; None: as the resource says.
    """

    plugin_image: str
    _: KW_ONLY
    plugin_pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    operator_namespace: str = "guidedmodel-system"
    python: str = "python3"
    run_dir: str = "/run/guidedmodel"
    config_path: str = "/etc/guidedmodel/config.json"
    named_grammars: str = "/etc/guidedmodel-grammars"
    plugin_dir: str = "/guidedmodel"
    home: str = "/tmp"  # noqa: S108 - an emptyDir of the pod's own
    hub: str = "/hub"
    cache: str = "/cache"
    models: Callable[[str], str] = _claim_folder
    own_volumes: str = "/mnt"
    bind_host: str = "0.0.0.0"  # noqa: S104 - inside a pod
    ports: PortsConfig = field(default_factory=PortsConfig)
    endpoint_lag_s: float | None = 5.0
    user_id: int | None = USER_ID
    hub_endpoint: str = ""
    otlp_endpoint: str | None = None

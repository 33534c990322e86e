"""Where a pod's containers run: in a pod of a cluster, or as processes of a laptop."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from guided_contract.config import PortsConfig
from guided_operator.api.model import MODELS_DIR

# Where the operator's image holds plugin, contract and sidecar with their dist-info, ready to be copied.
PLUGIN_SOURCE: Final = "/opt/guidedmodel/plugin"
USER_ID: Final = 10001  # no user of the image or, likely, of the node

# Folders that containers of a cluster have, and processes of a laptop do not need.
PLUGIN_DIR: Final = "/guidedmodel"  # plugin and sidecar are imported from it
HOME: Final = "/tmp"  # noqa: S108 - an emptyDir of the pod's own, for caches and temporary files
HUB: Final = "/hub"  # what is downloaded from the hub
CACHE: Final = "/cache"  # the claim with the engine's compile caches
OWN_VOLUMES: Final = "/mnt"  # the user's own volumes


def _claim_folder(claim: str) -> str:
    return f"{MODELS_DIR}/{claim}"


@dataclass(frozen=True, slots=True)
class Site:
    """What the operator's installation says of all pods, and paths and addresses as the containers see them.

    The defaults are those of a pod.
    """

    plugin_image: str  # our own, which the init container copies the plugin from
    _: KW_ONLY
    plugin_pull_policy: str = ""  # when a node pulls it; "": as Kubernetes does by its tag
    pull_secrets: tuple[str, ...] = ()  # that every pod pulls images with, beside its own
    operator_namespace: str = "guidedmodel-system"  # where the operator reads the pods' status from
    user_id: int | None = USER_ID  # and group, where the resource names none; None: the platform says
    hub_endpoint: str = ""  # URL of a mirror of the Hugging Face hub; "": the hub itself

    in_cluster: bool = True  # False: processes of a laptop, with their user's own folders and no Service
    python: str = "python3"  # runs launcher and sidecar
    run_dir: str = "/run/guidedmodel"  # sockets and heartbeats that engine and sidecar share
    config_path: str = "/etc/guidedmodel/config.json"
    named_grammars: str = "/etc/guidedmodel-grammars"  # folder of their files
    models: Callable[[str], str] = _claim_folder  # from a claim's name to the folder with its content
    bind_host: str = "0.0.0.0"  # noqa: S104 - inside a pod; what engine and sidecar listen on
    ports: PortsConfig = field(default_factory=PortsConfig)
    otlp_endpoint: str | None = None  # where traces go over HTTP; None: as the resource says

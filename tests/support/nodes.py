"""Two pods of one replica on this machine, told which they are as the LeaderWorkerSet's controller does."""

import msgspec
from devtools.process import free_ports

from guided_contract import names
from guided_contract.config import PodConfig
from support.engine import pod_config


def two_nodes(folders: tuple[str, str], **fields: object) -> tuple[PodConfig, PodConfig]:
    """Return the pods' configurations: alike but for the ports that two on one machine cannot share."""
    ranks, nodes = free_ports(2)
    one, other = (pod_config(folder, nodes=2, **fields) for folder in folders)  # type: ignore[arg-type]
    first, second = (
        msgspec.structs.replace(pod, ports=msgspec.structs.replace(pod.ports, ranks=ranks, nodes=nodes))
        for pod in (one, other)
    )
    return first, second


def place(node: int) -> dict[str, str]:
    """Return the environment of a node's containers."""
    return {names.ENV_NODE: str(node), names.ENV_LEADER: "127.0.0.1", "VLLM_HOST_IP": "127.0.0.1"}

"""The first process of a node's namespaces: sets them up, starts the cluster in them, forwards and reaps.

Started by `devtools.cluster`, never by hand. Everything in the namespaces ends with it.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from devtools import dns, forward, golang, isolation
from devtools.control_plane import NODE_NAME, Addresses, ControlPlane
from devtools.node import Node, NodeConfig
from devtools.process import Process

JAEGER = golang.TOOLS.parent / "manifests/observability/jaeger.yaml"
JAEGER_OTLP_PORT = 4318
JAEGER_QUERY_PORT = 16686
REAP_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class InitConfig:
    """What the host tells the first process; descriptors are of listening sockets that it inherits."""

    folder: str
    name: str
    api_port: int
    api_descriptor: int
    jaeger_descriptor: int
    mounts: list[tuple[str, str]]

    def write(self, path: Path) -> None:
        """Write the configuration where `read` finds it."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "InitConfig":
        """Read what `write` wrote."""
        return cls(**json.loads(path.read_text()))


def main() -> None:
    """Set up, say so by the file `ready`, and stay until a part dies or we are told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a namespace has no default actions
    config = InitConfig.read(Path(sys.argv[1]))
    folder = Path(config.folder)
    plane, node = _start(config, folder)
    parts = [*plane.processes, *node.processes, _start_jaeger(folder, plane.logs)]
    asyncio.run(_stay(config, parts, dns.service_address(plane.get)))


def _start(config: InitConfig, folder: Path) -> tuple[ControlPlane, Node]:
    isolation.make_private(folder / "private", NODE_NAME)
    # In a network of its own every port is free. The API server's is the host's: one kubeconfig fits both.
    addresses = Addresses(
        etcd=2379,
        etcd_peer=2380,
        api=config.api_port,
        controllers=10257,
        scheduler=10259,
        bind="0.0.0.0",  # noqa: S104 - of the private network
        advertise=isolation.NODE_ADDRESS,
    )
    isolation.mount_memory(folder / "etcd")
    plane = ControlPlane(folder, addresses, data=folder / "etcd")
    plane.start()
    mounts = [(Path(source), Path(target)) for source, target in config.mounts]
    node = Node(folder, NodeConfig(config.name, mounts), plane)
    node.start()
    return plane, node


def _start_jaeger(folder: Path, logs: Path) -> Process:
    settings = folder / "jaeger.yaml"
    settings.write_text(jaeger_settings())
    query = f"--set=extensions.jaeger_query.http.endpoint=127.0.0.1:{JAEGER_QUERY_PORT}"
    program = golang.jaeger() / "jaeger"
    return Process.start("jaeger", [program, f"--config={settings}", query], logs / "jaeger.log")


def jaeger_settings() -> str:
    """Return Jaeger's configuration file, as our manifest has it."""
    import yaml  # noqa: PLC0415 - builds begin before anything is installed

    objects = yaml.safe_load_all(JAEGER.read_text())
    [found] = (one["data"]["config.yaml"] for one in objects if one["kind"] == "ConfigMap")
    return str(found)


async def _stay(config: InitConfig, parts: list[Process], find: dns.Find) -> None:
    forwards = [
        forward.Forward(config.api_descriptor, config.api_port),
        forward.Forward(config.jaeger_descriptor, JAEGER_QUERY_PORT),
    ]
    names = await dns.serve(isolation.NODE_ADDRESS, find)
    serving = asyncio.create_task(forward.serve(forwards))
    _say_ready(config)
    while not serving.done():
        _reap({part.pid for part in parts})
        if dead := next((part for part in parts if not part.is_running()), None):
            sys.exit(f"{dead.name} ended; see {dead.log}")
        await asyncio.sleep(REAP_EVERY_S)
    names.close()
    serving.result()


def _say_ready(config: InitConfig) -> None:
    Path(config.folder, "ready").touch()


def _reap(ours: set[int]) -> None:
    """Collect the orphans that a namespace leaves to its first process, but not our children."""
    while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if found.si_pid in ours:
            return
        os.waitpid(found.si_pid, 0)


if __name__ == "__main__":
    main()

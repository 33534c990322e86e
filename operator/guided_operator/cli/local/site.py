"""Where a pod runs on a laptop: a temporary folder, free ports of localhost, folders in place of volumes."""

import atexit
import os
import random
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from guided_contract import grammar_files
from guided_contract.config import PortsConfig
from guided_operator.api import GuidedModel, ManifestError, Problem
from guided_operator.builders import Site, render
from guided_operator.builders.source import parse_source
from guided_operator.cli.local.pod import PodError

ENV_HOME: Final = "GUIDEDMODEL_HOME"  # folder of what belongs to this program
_HOME: Final = "~/.local/share/guidedmodel"
_LOOPBACK: Final = "127.0.0.1"
_DEFAULT_PORT: Final = 8000
_RANGE: Final = range(20000, 32000)
_TRIES: Final = 2000


def local_site(
    folder: Path, *, volumes: Mapping[str, Path], port: int | None, otlp_endpoint: str | None
) -> Site:
    """Return a site below `folder`, whose path must be short (sockets lie below it), with free ports.

    A claim that `volumes` does not name is a folder of that name in "volumes" of our home. `port` None: 8000,
    or another if that is taken. `otlp_endpoint` None: as the resource says.

    Raises
    ------
    PodError
        `port` is in use.
    """
    if port is not None and not _take(port):
        raise PodError(f"port {port} is in use")
    home = Path(os.environ.get(ENV_HOME) or _HOME).expanduser()

    def models(claim: str) -> str:
        return str(volumes.get(claim, home / "volumes" / claim))

    return Site(
        plugin_image="none",  # the installed plugin is used; the container that copies it is not run
        python=sys.executable,
        run_dir=str(folder / "run"),
        config_path=str(folder / "config.json"),
        named_grammars=str(folder / "named-grammars"),
        plugin_dir="",
        home="",
        hub="",
        cache="",
        models=models,
        bind_host=_LOOPBACK,
        ports=PortsConfig(engine=port or free_port(_DEFAULT_PORT), launcher=free_port(), sidecar=free_port()),
        endpoint_lag_s=None,
        otlp_endpoint=otlp_endpoint,
    )


def lay_out(
    gm: GuidedModel, sources: Mapping[str, Mapping[str, str]], site: Site, config_maps: Mapping[str, Path]
) -> Any:
    """Write the pod's files where the site says; return its pod template (V1PodTemplateSpec).

    Grammars' texts come from `sources`, the ConfigMaps' data by name, and from `config_maps`, folders that
    stand for ConfigMaps, a file for each key, followed as it changes.

    Raises
    ------
    ManifestError
        A model's folder, or a grammar's text, does not exist.
    """
    if gm.spec.parallelism.nodes > 1:
        raise ManifestError([Problem("spec.parallelism.nodes", "must be 1 here: this machine is one node")])
    problems = [*_folders_missing(gm, site), *_lay_out_grammars(gm, sources, site, config_maps)]
    if problems:
        raise ManifestError(problems)
    children = render(gm, site)
    Path(site.run_dir).mkdir(mode=0o700)
    config = Path(site.config_path)
    config.write_text(children.config_map.data[config.name])
    return children.template


def _lay_out_grammars(
    gm: GuidedModel, sources: Mapping[str, Mapping[str, str]], site: Site, config_maps: Mapping[str, Path]
) -> list[Problem]:
    problems = []
    folder = Path(site.named_grammars)
    folder.mkdir(mode=0o700)
    for index, grammar in enumerate(gm.spec.guided_decoding.grammars):
        name, key = grammar.config_map_key_ref.name, grammar.config_map_key_ref.key
        file = folder / grammar_files.file_name(grammar.name, grammar.kind)
        text = sources.get(name, {}).get(key)
        if name in config_maps and (config_maps[name] / key).is_file():
            file.symlink_to(config_maps[name] / key)
        elif name not in config_maps and text is not None:
            file.write_text(text)
        else:
            hint = "in the manifest file: add it there, or give a folder with --config-map"
            field = f"spec.guidedDecoding.grammars[{index}].configMapKeyRef"
            problems.append(Problem(field, f"there is no ConfigMap {name} with key {key} {hint} {name}=DIR"))
    return problems


def _folders_missing(gm: GuidedModel, site: Site) -> Iterator[Problem]:
    for field, uri in gm.spec.uris.items():
        source = parse_source(uri)
        location = Path(source.location(site))
        if source.is_local and not location.is_dir():
            hint = f"; --volume {source.claim}=DIR names another folder" if source.claim else ""
            yield Problem(field, f"there is no folder {location}{hint}")


def free_port(*wanted: int) -> int:
    """Return the first of these ports, or else another, that is free and that nobody else takes from us.

    Others lie below the range from which the kernel takes ports for outgoing connections, so that none is
    lost to one of those before its server binds it.
    """
    return next(port for port in (*wanted, *random.sample(_RANGE, _TRIES)) if _take(port))


def _take(port: int) -> bool:
    """Take a port for this process's life; False if it is in use, or another `guidedmodel run` has it.

    vLLM binds its port a minute after it was chosen, and shares it in silence with whoever is there.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        socket.create_server((_LOOPBACK, port)).close()
        claim.bind(f"\0guidedmodel-port-{port}")  # an abstract name: exclusive, and gone with the process
    except OSError:
        claim.close()
        return False
    atexit.register(claim.close)  # keeps it until then
    return True

"""Where a pod runs on a laptop: a temporary folder, free ports of localhost, folders in place of volumes."""

import atexit
import os
import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from guided_contract import grammar_files
from guided_contract.config import PortsConfig
from guided_operator.api import GuidedModel, Manifest, ManifestError, Problem
from guided_operator.builders.configuration import config_file
from guided_operator.builders.objects import Object
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.source import claim_of, is_local, location

ENV_HOME: Final = "GUIDEDMODEL_HOME"  # folder of what belongs to this program
_HOME: Final = "~/.local/share/guidedmodel"
_LOOPBACK: Final = "127.0.0.1"
_CONFIG_FILE: Final = "config.json"
_GRAMMARS: Final = "named-grammars"
_DEFAULT_PORT: Final = 8000
_RANGE: Final = range(20000, 32000)
_TRIES: Final = 2000


class PortTakenError(Exception):
    """The port that was asked for is in use."""


def volumes_folder() -> Path:
    """Return the folder that holds a folder for each claim that --volume does not name."""
    return Path(os.environ.get(ENV_HOME) or _HOME).expanduser() / "volumes"


def local_site(
    folder: Path, *, volumes: Mapping[str, Path], port: int | None, otlp_endpoint: str | None
) -> Site:
    """Return a site below `folder`, whose path must be short (sockets lie below it), with free ports.

    Claims that `volumes` does not name are looked for in `volumes_folder()`. `port` None: 8000, or another if
    that is taken. `otlp_endpoint` None: as the resource says.

    Raises
    ------
    PortTakenError
        `port` is in use.
    """
    engine, launcher, sidecar = _free_ports(port)

    def models(claim: str) -> str:
        return str(volumes.get(claim, volumes_folder() / claim))

    return Site(
        plugin_image="",  # the installed plugin is used
        in_cluster=False,
        python=sys.executable,
        run_dir=str(folder / "run"),
        config_path=str(folder / _CONFIG_FILE),
        named_grammars=str(folder / _GRAMMARS),
        models=models,
        bind_host=_LOOPBACK,
        ports=PortsConfig(engine=engine, launcher=launcher, sidecar=sidecar),
        otlp_endpoint=otlp_endpoint,
    )


def lay_out(manifest: Manifest, site: Site, config_maps: Mapping[str, Path]) -> Object:
    """Write the pod's files where the site says; return its pod template.

    `config_maps`: folders that stand for ConfigMaps, a file for each key, followed as it changes.

    Raises
    ------
    ManifestError
        A model's folder, or a grammar's text, does not exist.
    """
    gm = manifest.model
    if gm.spec.parallelism.nodes > 1:
        raise ManifestError([Problem("spec.parallelism.nodes", "must be 1 here: this machine is one node")])
    _check_folders(gm, site)
    _lay_out_grammars(manifest, Path(site.named_grammars), config_maps)
    Path(site.run_dir).mkdir(mode=0o700)
    [text] = config_file(gm, site).values()
    Path(site.config_path).write_text(text)
    return pod_template(gm, site)


def _lay_out_grammars(manifest: Manifest, folder: Path, config_maps: Mapping[str, Path]) -> None:
    problems = []
    folder.mkdir(mode=0o700)
    for index, grammar in enumerate(manifest.model.spec.guided_decoding.grammars):
        name, key = grammar.config_map_key_ref.name, grammar.config_map_key_ref.key
        file = folder / grammar_files.file_name(grammar.name, grammar.kind)
        text = manifest.config_maps.get(name, {}).get(key)
        if name in config_maps and (config_maps[name] / key).is_file():
            file.symlink_to(config_maps[name] / key)
        elif name not in config_maps and text is not None:
            file.write_text(text)
        else:
            hint = "in the manifest file: add it there, or give a folder with --config-map"
            field = f"spec.guidedDecoding.grammars[{index}].configMapKeyRef"
            problems.append(Problem(field, f"there is no ConfigMap {name} with key {key} {hint} {name}=DIR"))
    if problems:
        raise ManifestError(problems)


def _check_folders(gm: GuidedModel, site: Site) -> None:
    problems = []
    for field, uri in gm.spec.uris.items():
        path, claim = location(uri, site), claim_of(uri)
        if is_local(uri) and not Path(path).is_dir():
            hint = f"; --volume {claim}=DIR names another folder" if claim else ""
            problems.append(Problem(field, f"there is no folder {path}{hint}"))
    if problems:
        raise ManifestError(problems)


def _free_ports(wanted: int | None) -> list[int]:
    """Return the engine's port and two more.

    Those we choose lie below the range from which the kernel takes ports for outgoing connections, so that
    none is lost to one of those before its server binds it.
    """
    if wanted is not None and not _is_free(wanted):
        raise PortTakenError(f"port {wanted} is in use")
    first = [wanted] if wanted is not None else [_DEFAULT_PORT] if _is_free(_DEFAULT_PORT) else []
    others = (port for port in random.sample(_RANGE, _TRIES) if port not in first and _is_free(port))
    return [*first, *(next(others) for _ in range(3 - len(first)))]


def free_port() -> int:
    """Return a port that is free now, and that no other `guidedmodel run` takes."""
    return next(port for port in random.sample(_RANGE, _TRIES) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return _claim(port)


def _claim(port: int) -> bool:
    """Take a port for this process's life; False if another `guidedmodel run` has it.

    vLLM binds its port a minute after it was chosen, and shares it in silence with whoever is there.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0guidedmodel-port-{port}")  # an abstract name: exclusive, and gone with the process
    except OSError:
        claim.close()
        return False
    atexit.register(claim.close)  # keeps it until then
    return True

"""Arguments, subcommands and exit statuses of `guidedmodel`.

Exit status: 0 done, or stopped by a signal after starting; 1 the pod failed; 2 wrong arguments or manifest.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from guided_operator.api import Manifest, ManifestError, Problem, read
from guided_operator.api.crd import crd_text
from guided_operator.builders import cluster_site, render
from guided_operator.cli.local_site import PortTakenError
from guided_operator.cli.run import RunOptions, run
from guided_operator.cli.viewer import ViewerError

OK: Final = 0
BAD_INPUT: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` None: the process's own arguments. Return the exit status."""
    options = _parser().parse_args(argv)
    try:
        status: int = options.act(options)
    except ManifestError as error:
        for problem in error.problems:
            sys.stderr.write(f"{getattr(options, 'file', '')}: {problem}\n")
        return BAD_INPUT
    except (PortTakenError, ViewerError) as error:
        sys.stderr.write(f"guidedmodel: {error}\n")
        return BAD_INPUT
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="guidedmodel",
        description="Serve, check and look at GuidedModels without a cluster.",
        epilog="Exit status: 0 done or stopped, 1 the pod failed, 2 wrong arguments or manifest.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("run", help="serve a GuidedModel on this machine, until Ctrl-C")
    _add_file(command)
    command.add_argument(
        "--volume",
        action="append",
        default=[],
        type=_folder,
        metavar="CLAIM=DIR",
        help="folder that stands for a PersistentVolumeClaim; may be given again; "
        "default: $GUIDEDMODEL_HOME/volumes/CLAIM",
    )
    command.add_argument(
        "--config-map",
        action="append",
        default=[],
        type=_folder,
        metavar="NAME=DIR",
        help="folder that stands for a ConfigMap of named grammars, a file for each key, followed as it "
        "changes; may be given again; default: the ConfigMaps in the manifest's file",
    )
    command.add_argument("--port", type=_port, help="port of the OpenAI API; default: 8000 if free")
    command.add_argument("--viewer", action="store_true", help="open a page with the traces (arize-phoenix)")
    command.set_defaults(act=_run)

    command = commands.add_parser("validate", help="say what is wrong with a GuidedModel")
    _add_file(command)
    command.set_defaults(act=_validate)

    command = commands.add_parser("render", help="print the objects that the operator makes of a GuidedModel")
    _add_file(command)
    command.add_argument("--plugin-image", default="guidedmodel:dev", help="image of the operator and plugin")
    command.set_defaults(act=_render)

    command = commands.add_parser("crd", help="print the CustomResourceDefinition")
    command.set_defaults(act=_crd)
    return parser


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-f",
        "--file",
        required=True,
        help="manifest of one GuidedModel, and the ConfigMaps of its grammars if any, YAML or JSON; "
        "- reads stdin",
    )


def _folder(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIR")
    path = Path(folder).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path}")
    return name, path


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _read(file: str) -> Manifest:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise ManifestError([Problem("manifest", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ManifestError([Problem("manifest", f"is not UTF-8 text: {error}")]) from error
    return read(text)


def _run(options: argparse.Namespace) -> int:
    chosen = RunOptions(
        volumes=dict(options.volume),
        config_maps=dict(options.config_map),
        port=options.port,
        viewer=options.viewer,
    )
    return run(_read(options.file), chosen)


def _validate(options: argparse.Namespace) -> int:
    gm = _read(options.file).model
    print(f"{options.file}: GuidedModel {gm.namespace}/{gm.name} is valid")
    return OK


def _render(options: argparse.Namespace) -> int:
    manifest = _read(options.file)
    children = render(manifest.model, cluster_site(options.plugin_image), manifest.config_maps)
    print(yaml.safe_dump_all(children.manifests(), sort_keys=False), end="")
    return OK


def _crd(_options: argparse.Namespace) -> int:
    print(crd_text(), end="")
    return OK

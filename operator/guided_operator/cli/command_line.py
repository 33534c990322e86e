"""`guidedmodel`, and `kubectl gm`: the commands, their options, and who carries out each."""

import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_STATUSES: Final = (
    "Exit status: 0 done, or ready; 1 the pod failed, or a model is not ready, or the output cannot be "
    "written; 2 wrong arguments or manifest, or the cluster does not answer."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` None: the process's own arguments. Return the exit status."""
    called = "kubectl gm" if Path(sys.argv[0]).name == "kubectl-gm" else "guidedmodel"
    try:
        top.main(argv, prog_name=called)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _folder(_ctx: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """Return the folders of NAME=DIR by name."""
    found = {}
    for value in values:
        name, _, folder = value.partition("=")
        found[name] = Path(folder).resolve()
        if not (name and folder and found[name].is_dir()):
            raise click.BadParameter(f"{value!r} is not NAME=DIR with an existing folder")
    return found


def _end_with(where: str, **options: Any) -> None:
    """Exit with what a function of this package returns; all that it needs is imported for it alone."""
    sys.exit(pkgutil.resolve_name(f"guided_operator.cli.{where}")(**options))


@click.group(epilog=_STATUSES, context_settings={"help_option_names": ["-h", "--help"]})
def top() -> None:
    """Serve, check and inspect GuidedModels."""


@top.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NAME]... [OPTION]...")
def status(arguments: Sequence[str]) -> None:
    """Show the state of GuidedModels in the cluster, and what to do next.

    NAME: names of GuidedModels; default: all in the namespace. OPTION: what `kubectl get` takes: -n, -A, -l,
    --context, --kubeconfig. Exit status: 0 all are ready, 1 one is not, 2 they could not be read.
    """
    _end_with("status:main", arguments=arguments)


def _files(command: Command) -> Command:
    """Add `-f FILE...`: each further word is a file too, as a shell's `-f *.yaml` gives them."""
    option = click.option(
        "-f",
        "--file",
        "files",
        required=True,
        multiple=True,
        type=click.Path(),
        metavar="FILE...",
        help="YAML or JSON file with GuidedModels and the ConfigMaps of their grammars (other objects are "
        "skipped), or a folder of such files; - reads stdin; may be repeated",
    )
    return option(click.argument("more", nargs=-1, type=click.Path(), metavar="")(command))


@top.command()
@_files
def validate(files: Sequence[str], more: Sequence[str]) -> None:
    """Check GuidedModel manifests, without a cluster.

    Applies all rules of the API server and of the operator. If ConfigMaps are given too, they must hold all
    named grammars.
    """
    _end_with("validate:main", files=[*files, *more])


@top.command()
@_files
@click.option(
    "--plugin-image",
    default="guidedmodel:dev",
    show_default=True,
    help="image of the operator and plugin",
)
def render(files: Sequence[str], more: Sequence[str], plugin_image: str) -> None:
    """Print what the operator would create, without a cluster."""
    _end_with("render:main", files=[*files, *more], plugin_image=plugin_image)


@top.command(name="run")
@click.option(
    "-f",
    "--file",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="YAML or JSON file with one GuidedModel and the ConfigMaps of its grammars; - reads stdin",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    callback=_folder,
    metavar="CLAIM=DIR",
    help="folder to use as a PersistentVolumeClaim; may be repeated; default: "
    "$GUIDEDMODEL_HOME/volumes/CLAIM",
)
@click.option(
    "--config-map",
    "config_maps",
    multiple=True,
    callback=_folder,
    metavar="NAME=DIR",
    help="folder to use as a ConfigMap of named grammars, one file per key, watched for changes; may be "
    "repeated; default: the ConfigMaps in the manifest file",
)
@click.option("--port", type=click.IntRange(1, 65535), help="port of the OpenAI API; default: 8000 if free")
@click.option("--viewer", is_flag=True, help="show traces on a page (arize-phoenix)")
def run_locally(**options: Any) -> None:
    """Serve a GuidedModel on this machine until Ctrl-C."""
    _end_with("local.run:main", **options)

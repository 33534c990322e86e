"""What `guidedmodel` may be told: commands, options, and who carries out each.

Light to import: completion begins anew with every press of TAB.
"""

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])

_STATUSES: Final = (
    "Exit status: 0 done, or ready; 1 the pod failed, or a model is not ready, or the output cannot be "
    "written; 2 wrong arguments or manifest, or the cluster does not answer."
)
# Click's own completion, asked for by a variable of the environment, is off: no variable has this name.
_NO_VARIABLE: Final = "="


def program() -> str:
    """Return what the user called: `guidedmodel`, or `kubectl gm` for kubectl's plugin."""
    return "kubectl gm" if Path(sys.argv[0]).name == "kubectl-gm" else "guidedmodel"


def run(argv: Sequence[str]) -> int:
    """Parse and carry out a command; return its exit status, and 2 after a message if the words are wrong."""
    try:
        status: int = top.main([*argv], prog_name=program(), complete_var=_NO_VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return status


class _File(click.Path):
    """The name of a file or a folder, which cannot be empty: that would be the current folder."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the name."""
        if not value:
            self.fail("the name of a file is empty", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(click.ParamType[tuple[str, Path]]):
    """NAME=DIR, as (name, folder)."""

    name = "NAME=DIR"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        """Return name and folder, which has to be there."""
        name, equals, folder = str(value).partition("=")
        if not (name and equals and folder):
            self.fail(f"{value!r} is not NAME=DIR", param, ctx)
        path = Path(folder).resolve()
        if not path.is_dir():
            self.fail(f"there is no folder {path}", param, ctx)
        return name, path

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, _incomplete: str
    ) -> list[CompletionItem]:
        """Have the shell offer folders."""
        return [CompletionItem("", type="dir")]


def _contexts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from guided_operator.cli.cluster import kubeconfig  # noqa: PLC0415 - for TAB alone

    return [name for name in kubeconfig.contexts(ctx.params.get("kubeconfig")) if name.startswith(incomplete)]


def _of_cluster(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what offers the cluster's models or namespaces, but for those that were named already."""

    def look(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        names: list[str] = _act("cluster.connection:names", kind=kind, given=ctx.params)
        taken = ctx.params.get(param.name or "") if param.nargs == -1 else None
        return [name for name in names if name.startswith(incomplete) and name not in (taken or ())]

    return look


def _act(where: str, **options: Any) -> Any:
    """Call a function of this package by name: what serves, or asks a cluster, imports for a second."""
    return pkgutil.resolve_name(f"guided_operator.cli.{where}")(**options)


@click.group(epilog=_STATUSES, context_settings={"help_option_names": ["-h", "--help"]})
def top() -> None:
    """Serve, check and inspect GuidedModels."""


@top.command(short_help="show the state of GuidedModels in the cluster, and what to do next")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_of_cluster("models"))
@click.option(
    "-n",
    "--namespace",
    shell_complete=_of_cluster("namespaces"),
    help="namespace; default: the namespace of the context",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="GuidedModels in all namespaces")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["tree", "json", "yaml"]),
    default="tree",
    show_default=True,
    help="format of what is printed",
)
@click.option("-w", "--watch", is_flag=True, help="print the state again after each change")
@click.option(
    "--context", shell_complete=_contexts, help="context of the kubeconfig; default: the current context"
)
@click.option(
    "--kubeconfig",
    type=click.Path(),
    help="path of the kubeconfig; default: $KUBECONFIG, else ~/.kube/config",
)
def status(**options: Any) -> int:
    """Show the state of GuidedModels in the cluster, and what to do next.

    NAME: names of GuidedModels; default: all in the namespace. Shows their conditions, pods, ranks, grammars
    and last failures; of those that are named also what their status only counts, read from their pods, which
    takes the rights to list pods and to get pods/proxy. Exit status: 0 all are ready, 1 one is not, 2 they
    could not be read.
    """
    return int(_act("cluster.status:main", **options))


def _files(command: Command) -> Command:
    """Add `-f FILE...`: each further word is a file too, as a shell's `-f *.yaml` gives them."""
    option = click.option(
        "-f",
        "--file",
        "files",
        required=True,
        multiple=True,
        type=_File(),
        metavar="FILE...",
        help="YAML or JSON file with GuidedModels and the ConfigMaps of their grammars (other objects are "
        "skipped), or a folder of such files; - reads stdin; may be repeated",
    )
    more = click.argument("more", nargs=-1, type=_File(), metavar="")
    return option(more(command))


# As the operator's limits.arguments, which a manifest does not say.
_arguments = click.option(
    "--arguments",
    type=click.Choice(["Listed", "Any"]),
    default="Listed",
    show_default=True,
    help="what engine.args and engine.env may hold, as limits.arguments of the operator",
)


@top.command(short_help="check GuidedModel manifests, without a cluster")
@_files
@_arguments
def validate(files: Sequence[str], more: Sequence[str], arguments: str) -> int:
    """Check GuidedModel manifests, without a cluster.

    Applies all rules of the API server and of the operator. If ConfigMaps are given too, they must hold all
    named grammars. A logits processor's factory judges its params where its code is installed: this imports
    the code that the manifest names.
    """
    return int(_act("validate:main", files=[*files, *more], arguments=arguments))


@top.command(short_help="print the objects that the operator would create, without a cluster")
@_files
@click.option(
    "--plugin-image",
    default="guidedmodel:dev",
    show_default=True,
    help="image of the operator and plugin",
)
@_arguments
def render(files: Sequence[str], more: Sequence[str], plugin_image: str, arguments: str) -> int:
    """Print the objects that the operator would create, without a cluster."""
    return int(_act("render:main", files=[*files, *more], plugin_image=plugin_image, arguments=arguments))


@top.command(name="run", short_help="serve a GuidedModel on this machine until Ctrl-C")
@click.option(
    "-f",
    "--file",
    required=True,
    type=_File(),
    metavar="FILE",
    help="YAML or JSON file with one GuidedModel and the ConfigMaps of its grammars; - reads stdin",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    type=_Folder(),
    metavar="CLAIM=DIR",
    help="folder to use as a PersistentVolumeClaim; may be repeated; default: "
    "$GUIDEDMODEL_HOME/volumes/CLAIM",
)
@click.option(
    "--config-map",
    "config_maps",
    multiple=True,
    type=_Folder(),
    metavar="NAME=DIR",
    help="folder to use as a ConfigMap of named grammars, one file per key, watched for changes; may be "
    "repeated; default: the ConfigMaps in the manifest file",
)
@click.option("--port", type=click.IntRange(1, 65535), help="port of the OpenAI API; default: 8000 if free")
@_arguments
@click.option("--viewer", is_flag=True, help="open a page with the traces (arize-phoenix)")
def run_locally(**options: Any) -> int:
    """Serve a GuidedModel on this machine until Ctrl-C."""
    return int(_act("local.run:main", **options))


@top.command(short_help="print the CustomResourceDefinition")
def crd() -> int:
    """Print the CustomResourceDefinition."""
    return int(_act("render:print_crd"))


@top.command(short_help="print the shell completion script")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the shell completion script.

    bash, in ~/.bashrc: source <(guidedmodel completion bash). zsh, in ~/.zshrc after compinit: source
    <(guidedmodel completion zsh). fish: guidedmodel completion fish >
    ~/.config/fish/completions/guidedmodel.fish. `kubectl gm` is completed by kubectl itself.
    """
    return int(_act("completion:print_script", shell=shell))

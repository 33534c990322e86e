"""What `guidedmodel` may be told: commands, options, and who carries out each.

Light to import: completion begins anew with every press of TAB.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

# What completion offers for an argument besides fixed choices; `completes` of the argument says which.
FILES: Final = "files"
FOLDERS: Final = "folders"
MODELS: Final = "models"
NAMESPACES: Final = "namespaces"
CONTEXTS: Final = "contexts"

_STATUSES: Final = (
    "Exit status: 0 done, or ready; 1 the pod failed, or a model is not ready; "
    "2 wrong arguments or manifest, or the cluster does not answer."
)


def program() -> str:
    """Return what the user called: `guidedmodel`, or `kubectl gm` for kubectl's plugin."""
    return "kubectl gm" if Path(sys.argv[0]).name == "kubectl-gm" else "guidedmodel"


def parser() -> argparse.ArgumentParser:
    """Return the parser; `act` of what it parses names the function that carries it out."""
    top = argparse.ArgumentParser(
        prog=program(),
        description="Serve, check and inspect GuidedModels.",
        epilog=_STATUSES,
        allow_abbrev=False,  # an abbreviation in a script breaks when an option is added
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser
    _add_status(add)
    _add_validate(add)
    _add_render(add)
    _add_run(add)
    _add(add, "crd", "print the CustomResourceDefinition", act="render:print_crd")
    completion = _add(
        add,
        "completion",
        "print the shell completion script",
        "bash, in ~/.bashrc: source <(guidedmodel completion bash). "
        "zsh, in ~/.zshrc after compinit: source <(guidedmodel completion zsh). "
        "fish: guidedmodel completion fish > ~/.config/fish/completions/guidedmodel.fish. "
        "`kubectl gm` is completed by kubectl itself.",
        act="completion:print_script",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
    return top


# argparse's `add_parser`, of a type that has no public name.
_AddParser = Callable[..., argparse.ArgumentParser]


def _add(add: _AddParser, name: str, what: str, more: str = "", *, act: str) -> argparse.ArgumentParser:
    """Add a command; `act` is the module and function of this package that carries it out."""
    text = f"{what[0].upper()}{what[1:]}. {more}".strip()
    command = add(name, help=what, description=text, allow_abbrev=False)
    command.set_defaults(act=f"guided_operator.cli.{act}")
    return command


def _completes(argument: argparse.Action, what: str) -> None:
    argument.completes = what  # type: ignore[attr-defined]  # ours, for guided_operator.cli.completion


def _add_status(add: _AddParser) -> None:
    command = _add(
        add,
        "status",
        "show the state of GuidedModels in the cluster, and what to do next",
        "Their conditions, pods, ranks, grammars and last failures. "
        "Exit status: 0 all are ready, 1 one is not, 2 they could not be read.",
        act="cluster.status:main",
    )
    names = command.add_argument(
        "names", nargs="*", metavar="NAME", help="names of GuidedModels; default: all in the namespace"
    )
    _completes(names, MODELS)
    option = command.add_argument("-n", "--namespace", help="default: the namespace of the context")
    _completes(option, NAMESPACES)
    command.add_argument("-A", "--all-namespaces", action="store_true", help="GuidedModels in all namespaces")
    command.add_argument("-o", "--output", choices=["tree", "json", "yaml"], default="tree")
    command.add_argument("-w", "--watch", action="store_true", help="print the state again after each change")
    option = command.add_argument("--context", help="context of the kubeconfig; default: the current context")
    _completes(option, CONTEXTS)
    option = command.add_argument(
        "--kubeconfig", help="path of the kubeconfig; default: $KUBECONFIG, else ~/.kube/config"
    )
    _completes(option, FILES)


def _add_validate(add: _AddParser) -> None:
    command = _add(
        add,
        "validate",
        "check GuidedModel manifests, without a cluster",
        "Applies all rules of the API server and of the operator. If ConfigMaps are given too, "
        "they must hold all named grammars.",
        act="validate:main",
    )
    _add_files(command)


def _add_render(add: _AddParser) -> None:
    command = _add(
        add,
        "render",
        "print the objects that the operator would create, without a cluster",
        act="render:main",
    )
    _add_files(command)
    command.add_argument("--plugin-image", default="guidedmodel:dev", help="image of the operator and plugin")


def _add_files(command: argparse.ArgumentParser) -> None:
    files = command.add_argument(
        "-f",
        "--file",
        dest="files",
        required=True,
        action="extend",
        nargs="+",
        metavar="FILE",
        help="YAML or JSON file with GuidedModels and the ConfigMaps of their grammars (other "
        "objects are skipped), or a folder of such files; - reads stdin; may be repeated",
    )
    _completes(files, FILES)


def _add_run(add: _AddParser) -> None:
    command = _add(add, "run", "serve a GuidedModel on this machine until Ctrl-C", act="local.run:main")
    file = command.add_argument(
        "-f",
        "--file",
        required=True,
        help="YAML or JSON file with one GuidedModel and the ConfigMaps of its grammars; - reads stdin",
    )
    _completes(file, FILES)
    volume = command.add_argument(
        "--volume",
        action="append",
        default=[],
        type=_folder,
        metavar="CLAIM=DIR",
        help="folder to use as a PersistentVolumeClaim; may be repeated; default: "
        "$GUIDEDMODEL_HOME/volumes/CLAIM",
    )
    _completes(volume, FOLDERS)
    texts = command.add_argument(
        "--config-map",
        action="append",
        default=[],
        type=_folder,
        metavar="NAME=DIR",
        help="folder to use as a ConfigMap of named grammars, one file per key, watched for "
        "changes; may be repeated; default: the ConfigMaps in the manifest file",
    )
    _completes(texts, FOLDERS)
    command.add_argument("--port", type=_port, help="port of the OpenAI API; default: 8000 if free")
    command.add_argument("--viewer", action="store_true", help="open a page with the traces (arize-phoenix)")


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

"""What a shell may complete, taken from the parser itself, and names taken from the cluster.

A shell's script asks `guidedmodel __complete WORD...`, the last word being the one to complete. The answer is
cobra's, which kubectl understands for its plugins: a candidate per line, with a tab and its description where
there is one, and at last a colon and what else to offer.
"""

import argparse
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from guided_operator.cli import arguments
from guided_operator.cli.cluster import kubeconfig

COMMAND: Final = "__complete"
# Cobra's directives.
_FILES_TOO: Final = 0
_NO_FILES: Final = 4
_FOLDERS: Final = 16

Candidate = tuple[str, str]  # and its description


@dataclass(slots=True)
class _Place:
    """Where on the command line one is: the parser in charge, what was given to it, what awaits a value."""

    parser: argparse.ArgumentParser
    given: dict[str, str] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)
    awaiting: argparse.Action | None = None


def answer(words: Sequence[str]) -> int:
    """Print what the last word may become."""
    place = _walk(arguments.parser(), words[:-1])
    word = words[-1] if words else ""
    option, equals, value = word.partition("=")
    if equals and option.startswith("--"):
        place.awaiting = _option(place.parser, option)
        found, directive = _values(place, value)
        found = [(f"{option}={text}", what) for text, what in found]
    elif word.startswith("-") and (place.awaiting is None or place.awaiting.nargs == "+"):
        found, directive = list(_options(place, word)), _NO_FILES
    else:
        found, directive = _values(place, word)
    for text, what in found:
        print(f"{text}\t{what}" if what else text)
    print(f":{directive}")
    return 0


def _walk(parser: argparse.ArgumentParser, words: Iterable[str]) -> _Place:
    place = _Place(parser)
    for word in words:
        if word.startswith("-") and word != "-":
            option, equals, value = word.partition("=")
            action = _option(place.parser, option)
            place.awaiting = action if action is not None and not equals and action.nargs != 0 else None
            place.given[action.dest if action else option] = value
        elif place.awaiting is not None:
            place.given[place.awaiting.dest] = word
            if place.awaiting.nargs != "+":
                place.awaiting = None
        elif commands := _commands(place.parser):
            place = _Place(commands.get(word, place.parser))
        else:
            place.positionals.append(word)
    return place


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse has no public way to what it was told


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            return dict(action.choices)
    return {}


def _option(parser: argparse.ArgumentParser, text: str) -> argparse.Action | None:
    return next((each for each in _actions(parser) if text in each.option_strings), None)


def _options(place: _Place, word: str) -> Iterator[Candidate]:
    """Yield options that were not given yet, or may be given again."""
    for action in _actions(place.parser):
        longest = max(action.option_strings, key=len, default="")
        if longest.startswith(word) and (action.dest not in place.given or isinstance(action, _REPEATED)):
            yield longest, (action.help or "").partition(";")[0]


_REPEATED: Final = (argparse._AppendAction, argparse._ExtendAction)  # noqa: SLF001 - no public names


def _values(place: _Place, word: str) -> tuple[list[Candidate], int]:
    """Return what a word without a dash may become, and what the shell may offer besides."""
    if place.awaiting is None and (commands := _commands(place.parser)):
        described = {name: (one.description or "").partition(". ")[0] for name, one in commands.items()}
        return [(name, what) for name, what in described.items() if name.startswith(word)], _NO_FILES
    action = place.awaiting or _positional(place)
    if action is None:
        return [], _NO_FILES
    kind = getattr(action, "completes", "")
    if kind in _DIRECTIVES:
        return [], _DIRECTIVES[kind]
    names: Iterable[str] = action.choices or ()
    if kind == arguments.CONTEXTS:
        names = kubeconfig.contexts(place.given.get("kubeconfig"))
    elif kind:
        # By name, since it takes a second to import.
        look: Callable[[str, dict[str, str]], list[str]] = pkgutil.resolve_name(_LOOK)
        names = look(kind, place.given)
    taken = () if place.awaiting else place.positionals
    return [(name, "") for name in names if name.startswith(word) and name not in taken], _NO_FILES


_DIRECTIVES: Final = {arguments.FILES: _FILES_TOO, arguments.FOLDERS: _FOLDERS}
_LOOK: Final = "guided_operator.cli.cluster.connection:names"


def _positional(place: _Place) -> argparse.Action | None:
    positionals = [each for each in _actions(place.parser) if not each.option_strings]
    for index, action in enumerate(positionals):
        if action.nargs in ("*", "+") or index >= len(place.positionals):
            return action
    return None


def print_script(options: argparse.Namespace) -> int:
    """Print what a shell is to read."""
    print(_SCRIPTS[options.shell], end="")
    return 0


# The line is split at blanks: bash's own words are split at "=" and ":" too, which names of contexts hold.
_BASH: Final = r"""_guidedmodel() {
    local line=${COMP_LINE:0:COMP_POINT} answer candidate cut
    local -a words
    read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    answer=$("${words[0]}" __complete "${words[@]:1}" 2>/dev/null) || return
    COMPREPLY=()
    case ${answer##*:} in
        0) compopt -o default; return ;;
        16) compopt -o dirnames; return ;;
    esac
    cut=${words[-1]}
    cut=${cut%"${cut##*[=:@]}"}
    while IFS=$'\t' read -r candidate _; do
        [[ $candidate == :* ]] || COMPREPLY+=("${candidate#"$cut"}")
    done <<< "$answer"
}
complete -F _guidedmodel guidedmodel
"""
_ZSH: Final = r"""#compdef guidedmodel
_guidedmodel() {
    local -a answer described
    local line
    answer=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    case ${answer[-1]} in
        (:0) _files; return ;;
        (:16) _files -/; return ;;
    esac
    for line in "${(@)answer[1,-2]}"; do
        described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe -t guidedmodel guidedmodel described
}
compdef _guidedmodel guidedmodel
"""
_FISH: Final = r"""function __guidedmodel_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l answer ($words[1] __complete $words[2..-1] 2>/dev/null)
    switch "$answer[-1]"
        case ':0'
            __fish_complete_path (commandline -ct)
        case ':16'
            __fish_complete_directories (commandline -ct)
        case '*'
            test (count $answer) -gt 1; and printf '%s\n' $answer[1..-2]
    end
end
complete -c guidedmodel -f -a '(__guidedmodel_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

"""What a shell may complete: click's own answer, in cobra's words.

A shell's script asks `guidedmodel __complete WORD...`, the last word being the one to complete. The answer is
cobra's, which kubectl understands for its plugins: a candidate per line, with a tab and its description where
there is one, and at last a colon and what else to offer.
"""

from collections.abc import Sequence
from typing import Final

from click.shell_completion import ShellComplete

from guided_operator.cli import arguments

COMMAND: Final = "__complete"
# Cobra's directives, by the type of click's item: offer files too, folders, nothing.
_DIRECTIVES: Final = {"file": 0, "dir": 16}
_NOTHING_ELSE: Final = 4


def answer(words: Sequence[str]) -> int:
    """Print what the last word may become."""
    *before, word = words or [""]
    items = ShellComplete(arguments.top, {}, arguments.program(), "").get_completions(before, word)
    option, equals, _ = word.partition("=")
    prefix = f"{option}=" if equals and option.startswith("--") else ""
    directive = _NOTHING_ELSE
    for item in items:
        if item.type == "plain":
            what = (item.help or "").partition(";")[0]
            print(f"{prefix}{item.value}\t{what}" if what else f"{prefix}{item.value}")
        else:
            directive = _DIRECTIVES[item.type]
    print(f":{directive}")
    return 0


def print_script(shell: str) -> int:
    """Print what a shell is to read."""
    print(_SCRIPTS[shell], end="")
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

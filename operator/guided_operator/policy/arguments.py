"""What `spec.engine.args` and `spec.engine.env` may carry.

Reserved names are refused everywhere; of the rest an installation may allow and deny some. All else is
vLLM's, and what it refuses it says itself when it starts.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from guided_operator.api import GuidedModel, Problem
from guided_operator.api.engine import EnvVar
from guided_operator.api.words import is_number, option, switch
from guided_operator.policy import reserved_options, reserved_variables

_FULL: Final = re.compile(r"--[a-zA-Z0-9][a-zA-Z0-9_-]*(\.[^=]*)?(=.*)?")
_ASYNC: Final = {"--async-scheduling", "--no-async-scheduling"}
_TWINS: Final = ("--gpu-memory-utilization", "--device-memory-utilization")  # one option of two names
# Options whose value is a repository or a folder, with the words that are none; and those in whose JSON, at
# whatever place, a text with a "/" is one: --hf-overrides.text_model_id, .auto_map; code_revision of a
# processor's code; tensorizer_uri.
REPOSITORIES: Final = {"generation-config": {"auto", "vllm"}}
WITH_REPOSITORIES: Final = ("hf-overrides", "mm-processor-kwargs", "model-loader-extra-config")


@dataclass(frozen=True, slots=True)
class ArgumentLimits:
    """Names of options (--NAME) and of variables; one with a "*" at its end is all that begin so.

    Parameters
    ----------
    allow
        What resources may carry; empty: everything.
    deny
        What they may not carry, even if it is allowed. A beginning of a denied option is denied as well:
        vLLM would complete it.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def check(self, gm: GuidedModel) -> Iterator[Problem]:
        """Yield what this installation does not take of the engine's arguments and variables."""
        for index, word in enumerate(gm.spec.engine.args):
            name = option(word).split(".", 1)[0]
            if name and not self._takes(name):
                spoken = word.split("=", 1)[0]
                yield Problem(f"spec.engine.args[{index}]", f"{spoken} {self._told}")
        for index, variable in enumerate(gm.spec.engine.env):
            if not self._takes(variable.name):
                yield Problem(f"spec.engine.env[{index}].name", f"{variable.name} {self._told}")

    def _takes(self, name: str) -> bool:
        name, deny, allow = switch(name), tuple(map(switch, self.deny)), tuple(map(switch, self.allow))
        begins_denied = name.startswith("--") and any(each.startswith(name) for each in deny)
        twins = (other for one, other in itertools.permutations(_TWINS) if one.startswith(name))
        if begins_denied or any(is_among(each, deny) for each in (name, *twins)):
            return False
        return not allow or is_among(name, allow)

    @property
    def _told(self) -> str:
        allowed = f"allows {', '.join(self.allow)}" if self.allow else "allows all"
        but = f" but {', '.join(self.deny)}" if self.deny else ""
        return (
            f"is not allowed by this operator, which {allowed}{but}: remove it, or ask whoever runs the "
            "operator to change limits.arguments"
        )


ALL_ARGUMENTS: Final = ArgumentLimits()


def is_among(name: str, names: tuple[str, ...]) -> bool:
    """Return whether a name is one of others, of which one with a "*" at its end is all that begin so."""
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in names)


def check(gm: GuidedModel) -> Iterator[Problem]:
    """Yield reserved names, and words that are neither options nor values of one."""
    words = gm.spec.engine.args
    for index, word in enumerate(words):
        if fault := _fault(word, is_first=not index, speculates=gm.spec.speculative is not None):
            yield Problem(f"spec.engine.args[{index}]", fault)
    for index, variable in enumerate(gm.spec.engine.env):
        if told := reserved_variables.refusal(variable.name):
            yield Problem(f"spec.engine.env[{index}].name", told)
        elif _is_file_of_code(variable):
            yield Problem(
                f"spec.engine.env[{index}].value",
                "of NCCL_NET_PLUGIN must be the name of a library in the image, without a / and not from a "
                "Secret, because NCCL loads a file as code",
            )


def _fault(word: str, *, is_first: bool, speculates: bool) -> str:
    if not word.startswith("-") or is_number(word):
        return "must be an option (--NAME): the first word cannot be a value" if is_first else ""
    if not _FULL.fullmatch(word):
        return "write the option with its full name, as --NAME or --NAME=VALUE"
    if speculates and any(each.startswith(option(word)) for each in _ASYNC):
        return "is set by speculative.asyncScheduling if speculative is set: remove the argument"
    return reserved_options.refusal(word)


def _is_file_of_code(variable: EnvVar) -> bool:
    return variable.name == "NCCL_NET_PLUGIN" and (variable.value is None or "/" in variable.value)


def repositories(gm: GuidedModel) -> Iterator[tuple[int, str, str]]:
    """Yield index, option and name of each repository or folder that arguments name.

    Of JSON every text with a "/" is taken for one: only the hub's own, old repositories do without. A
    beginning of an option is the option, as vLLM completes it.
    """
    given = ""
    for index, word in enumerate(gm.spec.engine.args):
        given = option(word) or given
        if option(word) and "=" not in word:
            continue
        value = word.split("=", 1)[1] if option(word) else word
        name = given.removeprefix("--").split(".", 1)[0]
        for full, others in REPOSITORIES.items():
            if name and full.startswith(name) and value not in others:
                yield index, full, value
        for full in WITH_REPOSITORIES:
            if name and full.startswith(name):
                # --NAME.PART+ takes words with commas.
                found = [value] if given.endswith("+") else _texts(value)
                yield from ((index, full, text) for text in found if "/" in text)


def _texts(value: str) -> Iterator[str]:
    """Yield each text in JSON, but for keys; what is no JSON is a text itself, as vLLM reads it."""
    try:
        left = [json.loads(value)]
    except (ValueError, RecursionError):
        left = [value]
    while left:
        node = left.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict | list):
            left.extend(node.values() if isinstance(node, dict) else node)

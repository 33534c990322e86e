"""Which options and variables of vLLM a GuidedModel may carry, by what is known of its vLLM version.

The schema has refused what would break the pod's contract, whatever the version. Of the rest, those that the
version's vocabulary lists pass; where the installation has limits.arguments Any, others do too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from guided_contract.compatibility import SUPPORTED_VLLM
from guided_operator.api import GuidedModel, Problem, engine_env
from guided_operator.api.engine_args import REFUSED, option
from guided_operator.api.rule import matches
from guided_operator.policy.spec_checks import stated_vllm
from guided_operator.policy.vllm_0_32 import VLLM_0_32
from guided_operator.policy.vocabulary import TAKES_PARTS, Vocabulary

Arguments = Literal["Listed", "Any"]

VOCABULARIES: Final[Mapping[str, Vocabulary]] = {"0.32.0": VLLM_0_32}
_LATEST: Final = SUPPORTED_VLLM[-1]
_ASK: Final = "remove it, or have whoever runs the operator set limits.arguments to Any"


def check(gm: GuidedModel, allowed: Arguments) -> Iterator[Problem]:
    """Yield what is wrong with engine.args and engine.env; `allowed` is the installation's."""
    version, vocabulary = known(gm)
    words = gm.spec.engine.args
    unlisted = list(_unlisted(words, version, vocabulary, allowed))
    refused = {index for index, _ in unlisted}
    rest = ((index, fault) for index, fault in vocabulary.misplaced(words) if index - 1 not in refused)
    for index, fault in sorted({**dict(rest), **dict(unlisted)}.items()):
        yield Problem(f"spec.engine.args[{index}]", fault)
    yield from _variables(gm, version, vocabulary, allowed)


def known(gm: GuidedModel) -> tuple[str, Vocabulary]:
    """Return the vLLM version that a resource says it has, and what is known of it.

    For a version that nothing is known of, or none that is said: the latest that is supported.
    """
    version = stated_vllm(gm) or _LATEST
    return (version, VOCABULARIES[version]) if version in VOCABULARIES else (_LATEST, VOCABULARIES[_LATEST])


def _unlisted(
    words: Sequence[str], version: str, vocabulary: Vocabulary, allowed: Arguments
) -> Iterator[tuple[int, str]]:
    for index, word in enumerate(words):
        name, spoken = option(word), word.split("=", 1)[0]
        if not name or vocabulary.lists_option(name):
            continue
        if allowed == "Listed":
            yield index, f"{spoken} {_reason(name, version, vocabulary)}"
        elif longer := " or ".join(vocabulary.completions(name)):
            yield index, f"{spoken} is not a whole name, and vLLM would complete it: write {longer}"
        elif "." in name and "=" not in word:
            yield index, f"{spoken} takes the next word for its value, whatever it is: write {spoken}=VALUE"
        elif "." in name and not name.split(".", 1)[0].endswith(TAKES_PARTS):
            # Of an option without a value vLLM would take it for the model's name.
            whole = spoken.split(".", 1)[0]
            yield (
                index,
                f"{spoken} is a part, which only options that end with {TAKES_PARTS} have: write {whole}",
            )


def _reason(name: str, version: str, vocabulary: Vocabulary) -> str:
    if why := vocabulary.why_unlisted(name):
        return f"is not listed for vLLM {version}: {why}; {_ASK}"
    meant = vocabulary.closest(name)
    if meant and meant.removeprefix("--") in REFUSED:
        return f"is no option of vLLM {version}; did you mean {meant}? It {REFUSED[meant.removeprefix('--')]}"
    if meant:
        return f"is no option of vLLM {version}; did you mean {meant}?"
    return (
        f"is no option that is known of vLLM {version}; docs/arguments.md lists those that are. If your vLLM "
        f"has it: {_ASK}"
    )


def _variables(
    gm: GuidedModel, version: str, vocabulary: Vocabulary, allowed: Arguments
) -> Iterator[Problem]:
    listed = vocabulary.variables.union(engine_env.WAY_TO_THE_HUB, engine_env.TELEMETRY)
    for index, name in enumerate(variable.name for variable in gm.spec.engine.env):
        if name in listed or matches(engine_env.OWN, name) or allowed == "Any":
            continue
        reasons = (why for why, names in vocabulary.unlisted_variables.items() if name in names)
        if why := next(reasons, ""):
            told = f"is not listed for vLLM {version}: {why}; {_ASK}"
        elif meant := vocabulary.closest_variable(name):
            told = f"is not listed for vLLM {version}; did you mean {meant}?"
        else:
            told = (
                f"is not listed for vLLM {version}; docs/arguments.md has those that are. For your own code, "
                f"call it {engine_env.OWN_PREFIX}...; else {_ASK}"
            )
        yield Problem(f"spec.engine.env[{index}].name", f"{name} {told}")


def repositories(gm: GuidedModel) -> Iterator[tuple[int, str, str]]:
    """Yield index, option and name of each repository or folder that arguments name.

    Of JSON every text with a "/" is taken for one: only the hub's own, old repositories do without.
    """
    _, vocabulary = known(gm)
    given = ""
    for index, word in enumerate(gm.spec.engine.args):
        given = option(word) or given
        if option(word) and "=" not in word:
            continue
        value = word.split("=", 1)[1] if option(word) else word
        name = given.removeprefix("--").split(".", 1)[0]
        if name in vocabulary.repositories and value not in vocabulary.repositories[name]:
            yield index, name, value
        elif name in vocabulary.with_repositories:
            # --NAME.PART+ takes words with commas.
            found = [value] if given.endswith("+") else _texts(value)
            yield from ((index, name, text) for text in found if "/" in text)


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

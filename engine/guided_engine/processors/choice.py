"""Which logits processors a request gets: how its choice is read, for admission and for the ranks.

A choice stands in `vllm_xargs`, as "a,b" or as ["a", "b"]; "" and [] choose none. First comes what the
resource applies, in its list's order: what it enforces, and without a choice its defaults. Then what the
request names, in the request's order. Beside it stands what the request sets of their parameters, as
"a.size": 3.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from guided_contract.choices import MOST_PROCESSORS
from guided_contract.config import LogitsProcessorConfig

ARGUMENT: Final = "logits_processors"
_MOST_CHARACTERS: Final = 80  # of a client's own words in a message


class ChoiceError(ValueError):
    """A request's choice cannot be read or met, by its `key` in `vllm_xargs`; the message says why."""

    def __init__(self, message: str, key: str = ARGUMENT) -> None:
        super().__init__(message)
        self.key = _cut(key)


def chosen(choice: Any, processors: Sequence[LogitsProcessorConfig]) -> list[str]:
    """Return the names of the model's processors that a request gets, in the order in which they apply.

    `choice` is what stands under ARGUMENT; None: nothing. Raises ChoiceError if it is neither a string nor a
    list of strings, or has too many names, an empty one, one twice, or one that the model has not.
    """
    if choice is None:
        return [each.name for each in processors if each.enforced or each.apply_by_default]
    known = [each.name for each in processors]
    names = _items(choice)
    why = next(_faults(names, known), None)
    if why is not None:
        raise ChoiceError(f"{why}; this model has {', '.join(known) or 'none'}")
    enforced = [each.name for each in processors if each.enforced]
    return [*enforced, *(name for name in names if name not in enforced)]


def parameters(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what a request sets of the parameters of its processors `names`, by processor and parameter.

    Raises ChoiceError if one is for a processor that it does not get.
    """
    asked: dict[str, dict[str, Any]] = {}
    for key, value in arguments.items():
        name, dot, parameter = key.partition(".")
        if not dot:
            continue
        if name not in names:
            has = f"this request has {', '.join(names) or 'none'}"
            raise ChoiceError(f"there is no logits processor {_shown(name)} for it; {has}", key)
        asked.setdefault(name, {})[parameter] = value
    return asked


def _items(choice: Any) -> Sequence[Any]:
    if isinstance(choice, str):
        # In no more pieces than it takes to refuse them: a client may write a million.
        return [part.strip() for part in choice.split(",", MOST_PROCESSORS)] if choice.strip() else []
    return choice if isinstance(choice, list | tuple) else [choice]


def _faults(names: Sequence[Any], known: Sequence[str]) -> Iterator[str]:
    if len(names) > MOST_PROCESSORS:
        yield f"it has more than {MOST_PROCESSORS} names"
    for number, name in enumerate(names):
        if not isinstance(name, str):
            yield 'it must be a list of names, such as "a,b" or ["a", "b"]'
        elif not name:
            yield "it has an empty name"
        elif name in names[:number]:
            yield f"it has the name {_shown(name)} twice"
        elif name not in known:
            yield f"there is no logits processor {_shown(name)}"


def _shown(name: str) -> str:
    return json.dumps(_cut(name))


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}…"

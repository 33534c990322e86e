"""Stateful logits processors: `spec.logitsProcessors`."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.rule import Rule, rules

# Of one processor's params, as JSON. All 16 have room in the ConfigMap of the pod's configuration (1 MiB).
MAX_PARAMS_BYTES: Final = 32 * 1024
MAX_PARAMS_DEPTH: Final = 32  # pydantic writes 254 levels, and parsers of JSON end at a thousand or so
# What the operator holds in place of params that are too large.
LEFT_OUT: Final = {"": "left out"}


class LogitsProcessor(ApiModel):
    """A stateful logits processor; its factory makes one per sequence."""

    model_config = rules(
        Rule(
            "enforced",
            "an enforced processor always runs: remove applyByDefault, or set enforced to false",
            "!has(self.enforced) || !self.enforced || !has(self.applyByDefault) || self.applyByDefault",
        )
    )

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name that requests use. Unique in the list."""
    factory: Annotated[
        str,
        text(
            256,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
        ),
    ]
    """Class that creates the processor, as "package.module:Class". It must be importable in the engine
    container, and the installation must allow it (limits.processorFactories)."""
    params: Annotated[dict[str, Any], Field(max_length=32)] = Field(default={})
    """Keyword arguments of the factory: JSON of at most 32 KiB and 32 levels. Default: none."""
    apply_by_default: bool = True
    """Whether the processor also runs for requests that select none. Default: true."""
    enforced: bool = False
    """Whether the processor runs for every request, before those that the request selects, for example for
    moderation or watermarks. Not allowed with applyByDefault false. Default: false."""


def is_too_large(params: Any) -> bool:
    """Return whether params are data rather than settings; a schema cannot bound JSON of any shape."""
    return params == LEFT_OUT or _is_deep(params) or len(json.dumps(params).encode()) > MAX_PARAMS_BYTES


def _is_deep(params: Any) -> bool:
    level = list(_containers([params]))
    for _ in range(MAX_PARAMS_DEPTH):
        level = [
            one for each in level for one in _containers(each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    return (each for each in values if isinstance(each, dict | list))

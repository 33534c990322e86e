"""All validation rules of a GuidedModel beyond types, for the API server (CEL) and for Python.

The server enforces the CEL text while the operator is down; `guidedmodel run`, which has no server, and the
operator evaluate `broken`. tests/cluster shows that both give the same verdict.
"""

import functools
from collections.abc import Iterator
from typing import Any, Final

from guided_contract.backends import BACKENDS
from guided_operator.api.accelerator import ACCELERATOR_RULES
from guided_operator.api.base import ApiModel
from guided_operator.api.engine import ENGINE_RULES
from guided_operator.api.logits_processors import LOGITS_PROCESSOR_RULES
from guided_operator.api.lora import LORA_RULES
from guided_operator.api.model import MODEL_RULES
from guided_operator.api.parallelism import PARALLELISM_RULES
from guided_operator.api.resource import GuidedModel
from guided_operator.api.rollout import ROLLOUT_RULES
from guided_operator.api.rule import Problem, Rule, cel_text, matches
from guided_operator.api.speculative import SPECULATIVE_RULES
from guided_operator.api.storage import STORAGE_RULES

NAME_LENGTH: Final = 40  # leaves room for what Kubernetes appends to names of pods (63 in all)
_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # a Service's name is stricter than a resource's


RULES: Final = (
    *PARALLELISM_RULES,
    Rule(
        (),
        "metadata.name",
        f"must have at most {NAME_LENGTH} characters, because names of pods are derived from it",
        f"self.metadata.name.size() <= {NAME_LENGTH}",
        lambda gm: len(gm.metadata.name) > NAME_LENGTH,
    ),
    Rule(
        (),
        "metadata.name",
        "must consist of lower-case letters, digits and dashes, and begin with a letter, because "
        "a Service gets this name",
        f"self.metadata.name.matches({cel_text(_NAME)})",
        lambda gm: not matches(_NAME, gm.metadata.name),
    ),
    *MODEL_RULES,
    *ENGINE_RULES,
    *ACCELERATOR_RULES,
    *SPECULATIVE_RULES,
    *LORA_RULES,
    *STORAGE_RULES,
    Rule(
        ("spec", "guidedDecoding"),
        "whitespace",
        f"with placement Scheduler, Compact needs a named backend: set backend to {' or '.join(BACKENDS)}",
        "!(has(self.placement) && self.placement == 'Scheduler' && has(self.whitespace) && "
        "self.whitespace == 'Compact' && (!has(self.backend) || self.backend == 'Auto'))",
        lambda guided: (
            (guided.placement, guided.whitespace, guided.backend) == ("Scheduler", "Compact", "Auto")
        ),
    ),
    *LOGITS_PROCESSOR_RULES,
    Rule(
        ("spec", "guidedDecoding"),
        "grammars",
        "not supported with placement Scheduler: named grammars are loaded by the ranks",
        "!has(self.grammars) || self.grammars.size() == 0 || "
        "!has(self.placement) || self.placement != 'Scheduler'",
        lambda guided: bool(guided.grammars) and guided.placement == "Scheduler",
    ),
    *ROLLOUT_RULES,
)


def nodes(model: ApiModel, at: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield each node that `at` leads to, with its path as users write it; none where a part is absent."""
    found: list[tuple[str, Any]] = [("", model)]
    for part in at:
        found = [step for path, value in found if value is not None for step in _descend(path, value, part)]
    yield from ((path, value) for path, value in found if value is not None)


def _descend(path: str, value: Any, part: str) -> Iterator[tuple[str, Any]]:
    if part == "*":
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
        return
    yield (f"{path}.{part}" if path else part), getattr(value, _attribute(type(value), part))  # type: ignore[arg-type]  # a type has a hash


@functools.cache
def _attribute(model: type[ApiModel], part: str) -> str:
    """Return the attribute of a field that users write as `part`."""
    return next(name for name, field in model.model_fields.items() if (field.alias or name) == part)


def broken_rules(gm: GuidedModel) -> list[Problem]:
    """Return what the API server would refuse by CEL, in the order of the rules."""
    return [
        Problem(".".join(filter(None, (path, rule.field))), rule.message)
        for rule in RULES
        for path, node in nodes(gm, rule.at)
        if rule.broken(node)
    ]

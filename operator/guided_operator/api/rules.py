"""What a GuidedModel must fulfil beyond types: each rule once, for the API server (CEL) and for Python.

The server enforces the CEL text while the operator is down; `guidedmodel run`, which has no server, and the
operator evaluate `broken`. tests/cluster shows that both give the same verdict.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.heartbeat import SLOTS
from guided_operator.api.base import ApiModel, seconds
from guided_operator.api.reserved import (
    OWNED,
    OWNED_ARGS,
    OWNED_ENV,
    OWNED_WITH_SPECULATIVE,
    UNSUPPORTED,
    UNSUPPORTED_ARGS,
    UNSUPPORTED_ENV,
)
from guided_operator.api.resource import GuidedModel


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a GuidedModel: where, as `spec.engine.args[2]`, and why."""

    field: str
    message: str

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One demand on the node at `at` ("*" stands for each item of a list).

    `cel` holds where the demand is met; `broken` is its negation on the parsed node. `field` is the part of
    the node that is reported.
    """

    at: tuple[str, ...]
    field: str
    message: str
    cel: str
    broken: Callable[[Any], bool]


NAME_LENGTH: Final = 40  # leaves room for what Kubernetes appends to names of pods (63 in all)
_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # a Service's name is stricter than a resource's

_PART: Final = "[A-Za-z0-9_][A-Za-z0-9._@+-]*"  # never "." or "..", nor a hidden folder
_URI: Final = (
    f"^(hf://{_PART}(/{_PART})?|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/{_PART})*|file://(/{_PART})+)$"
)
_SCHEME: Final = "^(hf|pvc|file)://"


def _cel(pattern: str) -> str:
    return "'" + pattern.replace("\\", "\\\\") + "'"


def _no_match(pattern: str, value: str) -> bool:
    return re.search(pattern, value) is None


def _source_rules(*at: str) -> tuple[Rule, ...]:
    return (
        Rule(
            at,
            "uri",
            "the scheme must be hf://, pvc:// or file://; s3:// and oci:// are not supported yet",
            f"self.uri.matches({_cel(_SCHEME)})",
            lambda source: _no_match(_SCHEME, source.uri),
        ),
        Rule(
            at,
            "uri",
            "must be hf://ORG/NAME, pvc://CLAIM/PATH or file:///PATH, without . or .. in a path",
            f"!self.uri.matches({_cel(_SCHEME)}) || self.uri.matches({_cel(_URI)})",
            lambda source: not _no_match(_SCHEME, source.uri) and _no_match(_URI, source.uri),
        ),
        Rule(
            at,
            "revision",
            "only a model from the hub (hf://) has a revision",
            "!has(self.revision) || self.uri.startsWith('hf://')",
            lambda source: source.revision is not None and not source.uri.startswith("hf://"),
        ),
    )


def _gpu_rule(part: str) -> Rule:
    return Rule(
        ("spec", "resources"),
        part,
        "GPUs follow from engine.device and parallelism; remove nvidia.com/gpu",
        f"!has(self.{part}) || !('nvidia.com/gpu' in self.{part})",
        lambda resources: "nvidia.com/gpu" in getattr(resources, part),
    )


def _argument_rule(pattern: str, fault: str, arguments: Iterable[str]) -> Rule:
    return Rule(
        ("spec", "engine"),
        "args",
        f"an argument {fault} ({', '.join(f'--{name}' for name in arguments)})",
        f"!has(self.args) || !self.args.exists(a, a.matches({_cel(pattern)}))",
        lambda engine: any(re.search(pattern, argument) for argument in engine.args),
    )


def _variable_rule(pattern: str, message: str) -> Rule:
    return Rule(
        ("spec", "engine", "env", "*"),
        "name",
        message,
        f"!self.name.matches({_cel(pattern)})",
        lambda variable: not _no_match(pattern, variable.name),
    )


RULES: Final = (
    Rule(
        ("spec", "parallelism"),
        "data",
        f"data times (1 + tensor times pipeline) may not exceed {SLOTS}, the slots for heartbeats",
        # Where the whole object is a default, its own are not in it yet.
        "!has(self.tensor) || !has(self.pipeline) || !has(self.data)"
        f" || self.data * (1 + self.tensor * self.pipeline) <= {SLOTS}",
        lambda spread: spread.data * (1 + spread.tensor * spread.pipeline) > SLOTS,
    ),
    Rule(
        (),
        "metadata.name",
        f"must have at most {NAME_LENGTH} characters, since names of pods are made from it",
        f"self.metadata.name.size() <= {NAME_LENGTH}",
        lambda gm: len(gm.metadata.name) > NAME_LENGTH,
    ),
    Rule(
        (),
        "metadata.name",
        "must be lower-case letters, digits and dashes, and begin with a letter, since a Service is named so",
        f"self.metadata.name.matches({_cel(_NAME)})",
        lambda gm: _no_match(_NAME, gm.metadata.name),
    ),
    *_source_rules("spec", "model"),
    *_source_rules("spec", "speculative", "draftModel"),
    _argument_rule(OWNED, "repeats what a typed field, the launcher or the plugin owns", OWNED_ARGS),
    _argument_rule(UNSUPPORTED, "asks for what these pods do not serve yet", UNSUPPORTED_ARGS),
    Rule(
        ("spec",),
        "engine.args",
        "with speculative set, speculative.asyncScheduling decides whether scheduling is asynchronous",
        "!has(self.speculative) || !has(self.engine.args) || "
        f"!self.engine.args.exists(a, a.matches({_cel(OWNED_WITH_SPECULATIVE)}))",
        lambda spec: (
            spec.speculative is not None
            and any(re.search(OWNED_WITH_SPECULATIVE, arg) for arg in spec.engine.args)
        ),
    ),
    _variable_rule(OWNED_ENV, "the operator sets this variable"),
    _variable_rule(UNSUPPORTED_ENV, "not supported yet: the pod's own guided probe has no key"),
    Rule(
        ("spec", "engine", "env", "*"),
        "value",
        "exactly one of value and valueFrom must be set",
        "has(self.value) != has(self.valueFrom)",
        lambda variable: (variable.value is None) == (variable.value_from is None),
    ),
    Rule(
        ("spec", "telemetry", "otlp"),
        "tls",
        "certificates are for an endpoint with https://",
        "!has(self.tls) || self.endpoint.startsWith('https://')",
        lambda otlp: otlp.tls is not None and not otlp.endpoint.startswith("https://"),
    ),
    Rule(
        ("spec", "guidedDecoding"),
        "whitespace",
        "vLLM's own path (placement Scheduler) knows Compact only for a named backend: "
        "set backend to XGrammar or Guidance",
        "!(has(self.placement) && self.placement == 'Scheduler' && has(self.whitespace) && "
        "self.whitespace == 'Compact' && (!has(self.backend) || self.backend == 'Auto'))",
        lambda guided: (
            (guided.placement, guided.whitespace, guided.backend) == ("Scheduler", "Compact", "Auto")
        ),
    ),
    Rule(
        ("spec",),
        "logitsProcessors",
        "logits processors run beside the masks on the ranks: with placement Scheduler there are none",
        "!has(self.logitsProcessors) || self.logitsProcessors.size() == 0 || !has(self.guidedDecoding) || "
        "!has(self.guidedDecoding.placement) || self.guidedDecoding.placement != 'Scheduler'",
        lambda spec: bool(spec.logits_processors) and spec.guided_decoding.placement == "Scheduler",
    ),
    Rule(
        ("spec", "guidedDecoding"),
        "grammars",
        "named grammars are resolved on their way to the ranks: with placement Scheduler there are none",
        "!has(self.grammars) || self.grammars.size() == 0 || "
        "!has(self.placement) || self.placement != 'Scheduler'",
        lambda guided: bool(guided.grammars) and guided.placement == "Scheduler",
    ),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "method DraftModel needs draftModel.uri",
        "self.method != 'DraftModel' || has(self.draftModel)",
        lambda spec: spec.method == "DraftModel" and spec.draft_model is None,
    ),
    Rule(
        ("spec", "speculative"),
        "draftModel",
        "method NGram guesses from the prompt and has no draft model",
        "self.method != 'NGram' || !has(self.draftModel)",
        lambda spec: spec.method == "NGram" and spec.draft_model is not None,
    ),
    Rule(
        ("spec",),
        "speculative.method",
        "vLLM 0.32 runs no draft model behind pipeline stages: set parallelism.pipeline to 1, or use NGram",
        "!has(self.speculative) || self.speculative.method != 'DraftModel' || !has(self.parallelism) || "
        "!has(self.parallelism.pipeline) || self.parallelism.pipeline == 1",
        lambda spec: (
            spec.speculative is not None
            and spec.speculative.method == "DraftModel"
            and spec.parallelism.pipeline > 1
        ),
    ),
    Rule(
        ("spec", "speculative"),
        "asyncScheduling",
        "NGram guesses on the CPU between two steps, so vLLM must schedule synchronously: "
        "use Auto or Off, or method DraftModel",
        "self.method != 'NGram' || !has(self.asyncScheduling) || self.asyncScheduling != 'On'",
        lambda spec: spec.method == "NGram" and spec.async_scheduling == "On",
    ),
    _gpu_rule("requests"),
    _gpu_rule("limits"),
    Rule(
        ("spec", "sidecar"),
        "restart",
        "baseDelay must not exceed maxDelay",
        "!has(self.restart) || !has(self.restart.baseDelay) || !has(self.restart.maxDelay) || "
        "duration(self.restart.baseDelay) <= duration(self.restart.maxDelay)",
        lambda sidecar: seconds(sidecar.restart.base_delay) > seconds(sidecar.restart.max_delay),
    ),
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
    attribute = next(
        name for name, field in type(value).model_fields.items() if (field.alias or name) == part
    )
    yield (f"{path}.{part}" if path else part), getattr(value, attribute)


def broken_rules(gm: GuidedModel) -> list[Problem]:
    """Return what the API server would refuse by CEL, in the order of the rules."""
    return [
        Problem(f"{path}.{rule.field}" if path else rule.field, rule.message)
        for rule in RULES
        for path, node in nodes(gm, rule.at)
        if rule.broken(node)
    ]

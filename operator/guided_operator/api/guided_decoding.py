"""How guided requests are served: `spec.guidedDecoding`."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from guided_contract.backends import BACKENDS, Choice
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_operator.api.base import ApiModel, ByName, Bytes, Duration, ObjectName, between, text
from guided_operator.api.quantity import amount
from guided_operator.api.rule import Rule, rules


class Compile(ApiModel):
    """Limits on compiling one grammar."""

    timeout: Annotated[Duration, between("100ms", "10m")] = "10s"
    """Time limit for compiling one grammar, 100ms to 10m. After it the request gets a 400, or a 503 if it
    waited for a worker for half of that time. Default: 10s."""
    workers: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of grammars that compile in parallel, each in its own process. Default: one per 2 CPUs of the
    sidecar's CPU limit, at least 2 and at most 16; 2 without a limit."""
    memory: Annotated[Bytes, between("128Mi", "1Ti", amount)] = "2Gi"
    """Memory limit of one compilation, 128Mi to 1Ti, in addition to memory that the workers share. A grammar
    that needs more gets a 400. Default: 2Gi, or less if the sidecar's memory limit has no room for it."""
    max_schema_size: Annotated[Bytes, between("1Ki", "2Mi", amount)] = "256Ki"
    """Maximum size of the text of a schema, regex or grammar, 1Ki to 2Mi. A larger one gets a 400. Default:
    256Ki."""
    max_depth: Annotated[int, Field(ge=4, le=256)] = 64
    """Maximum nesting depth of a schema. A deeper one gets a 400. Default: 64."""


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in this namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, text(253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the ConfigMap."""


class NamedGrammar(ApiModel):
    """A grammar that requests use by name; it is compiled before the first request."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name that requests send, as vllm_xargs: {"guided_grammar": NAME}. Unique in the list."""
    kind: Literal["JSONSchema", "Regex", "EBNF", "StructuralTag"]
    """Kind of the grammar. EBNF is in XGrammar's or in Lark's syntax."""
    config_map_key_ref: ConfigMapKey
    """Key of a ConfigMap that holds the text of the grammar. The texts of a model can total at most 1 MiB. A
    change reaches running pods within about two minutes, without a restart."""


def _distinct(options: list[RequestOption]) -> list[RequestOption]:
    if twice := sorted({option for option in options if options.count(option) > 1}):
        raise ValueError(f"items must be unique; duplicate: {', '.join(twice)}")
    return options


class GuidedDecoding(ApiModel):
    """How requests with a schema, regex, choice or grammar are served."""

    model_config = rules(
        Rule(
            "whitespace",
            f"Compact with placement Scheduler needs backend {' or '.join(BACKENDS)}: set one of them",
            "!(has(self.placement) && self.placement == 'Scheduler' && has(self.whitespace) && "
            "self.whitespace == 'Compact' && (!has(self.backend) || self.backend == 'Auto'))",
        ),
        Rule(
            "grammars",
            "is not supported with placement Scheduler, as ranks load named grammars: use placement Rank",
            "!has(self.grammars) || self.grammars.size() == 0 || "
            "!has(self.placement) || self.placement != 'Scheduler'",
        ),
    )

    placement: Literal["Rank", "Scheduler"] = "Rank"
    """Where token masks are computed. Rank: on each rank. Scheduler: in vLLM's scheduler, as in stock vLLM.
    Default: Rank."""
    backend: Choice = "Auto"
    """Grammar library. Auto: for each grammar, the first library that enforces all of its keywords. Default:
    Auto."""
    unsupported_keywords: UnsupportedKeywords = "Route"
    """What happens to a schema with a keyword that the backend does not enforce. Route: another backend that
    enforces it is used; without one, the request gets a 400. Reject: the request gets a 400. Allow: as Route,
    but without one, the keyword is ignored and a response header names it. Default: Route."""
    whitespace: Whitespace = "Flexible"
    """Whitespace between JSON tokens. Flexible: at most 42 characters. Compact: none. Unbounded: any, as in
    stock vLLM. With placement Scheduler, Flexible is the same as Unbounded, and Compact needs a backend other
    than Auto. Default: Flexible."""
    request_options: Annotated[list[RequestOption], Field(max_length=3), AfterValidator(_distinct)] = Field(
        default=list(get_args(RequestOption)), json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Settings that a request may override in vllm_xargs. A request that overrides another setting gets a
    400. An empty list allows none. Default: all three."""
    proof: Literal["Always", "Never"] = "Always"
    """Whether each compiled grammar is checked by random walks, before its first answer, for dead ends, slow
    masks and text that the schema does not allow. This takes some milliseconds per new grammar. Default:
    Always."""
    compile: Compile = Compile()
    grammars: Annotated[ByName[NamedGrammar], Field(max_length=64)] = Field(default=[])
    """Grammars that requests use by name. A pod becomes ready after it has compiled and loaded them. A change
    of the list restarts no pod. Not supported with placement Scheduler. Default: none."""

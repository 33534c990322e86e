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
    """Deadline for compiling one grammar, 100ms to 10m; then the request gets a 400, or a 503 if no worker
    was free for half of it. Default: 10s."""
    workers: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of grammars that compile at the same time, each in its own process. Default: one per 2 CPUs of
    the sidecar's CPU limit, 2 to 16; 2 without a limit."""
    memory: Annotated[Bytes, between("128Mi", "1Ti", amount)] = "2Gi"
    """Memory that one compilation may use, 128Mi to 1Ti, beyond what all workers share; a grammar that needs
    more gets a 400. Default: 2Gi, or less if the sidecar's memory limit has no room for it."""
    max_schema_size: Annotated[Bytes, between("1Ki", "2Mi", amount)] = "256Ki"
    """Maximum size of a schema, regex or grammar as text, 1Ki to 2Mi; a larger one gets a 400. Default:
    256Ki."""
    max_depth: Annotated[int, Field(ge=4, le=256)] = 64
    """Maximum nesting depth of a schema; a deeper one gets a 400. Default: 64."""


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in this namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, text(253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the ConfigMap."""


class NamedGrammar(ApiModel):
    """A grammar that requests use by name; it is compiled before the first request."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name that requests use, as vllm_xargs: {"guided_grammar": NAME}. Unique in the list."""
    kind: Literal["JSONSchema", "Regex", "EBNF", "StructuralTag"]
    """Kind of the grammar. EBNF: in XGrammar's or in Lark's syntax."""
    config_map_key_ref: ConfigMapKey
    """Key of a ConfigMap that holds the grammar's text; all of a model may have 1 MiB together. A change
    reaches running pods within about two minutes, without a restart."""


def _distinct(options: list[RequestOption]) -> list[RequestOption]:
    if twice := sorted({option for option in options if options.count(option) > 1}):
        raise ValueError(f"items must be unique; duplicate: {', '.join(twice)}")
    return options


class GuidedDecoding(ApiModel):
    """How requests with a schema, regex, choice or grammar are served."""

    model_config = rules(
        Rule(
            "whitespace",
            f"with placement Scheduler, Compact needs a backend by name: {' or '.join(BACKENDS)}",
            "!(has(self.placement) && self.placement == 'Scheduler' && has(self.whitespace) && "
            "self.whitespace == 'Compact' && (!has(self.backend) || self.backend == 'Auto'))",
        ),
        Rule(
            "grammars",
            "not supported with placement Scheduler: named grammars are loaded by the ranks",
            "!has(self.grammars) || self.grammars.size() == 0 || "
            "!has(self.placement) || self.placement != 'Scheduler'",
        ),
    )

    placement: Literal["Rank", "Scheduler"] = "Rank"
    """Where grammar masks are computed. Rank: on every rank, beside the sampler. Scheduler: in vLLM's
    scheduler, as stock vLLM does it. Default: Rank."""
    backend: Choice = "Auto"
    """Grammar library. Auto: chosen for each grammar by which keywords each library enforces. Default:
    Auto."""
    unsupported_keywords: UnsupportedKeywords = "Route"
    """What to do with a schema that has a keyword which the backend does not enforce. Route: use another
    backend that enforces all, else a 400. Reject: a 400. Allow: as Route, but where none does, serve the
    request without the keyword, and say so in a header. Default: Route."""
    whitespace: Whitespace = "Flexible"
    """Whitespace between JSON tokens. Flexible: at most 42 characters. Compact: none. Unbounded: any, as in
    vLLM. With placement Scheduler, Flexible is as Unbounded. Default: Flexible."""
    request_options: Annotated[list[RequestOption], Field(max_length=3), AfterValidator(_distinct)] = Field(
        default=list(get_args(RequestOption)), json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """What a request may choose for itself in vllm_xargs; one that chooses anything else gets a 400. An empty
    list: nothing. Default: all three."""
    proof: Literal["Always", "Never"] = "Always"
    """Whether a compiled grammar is checked by random walks before its first answer, for dead ends, slow
    masks and text that a schema does not allow. Default: Always, which adds some milliseconds per new
    grammar."""
    compile: Compile = Compile()
    grammars: Annotated[ByName[NamedGrammar], Field(max_length=64)] = Field(default=[])
    """Grammars that requests use by name. A pod becomes ready once it has compiled and loaded them. Adding,
    changing or removing one restarts nothing. Default: none."""

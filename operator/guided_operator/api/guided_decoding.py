"""How guided requests are served: `spec.guidedDecoding`."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from guided_contract.backends import BACKENDS, Choice
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_operator.api.base import ApiModel, Bytes, Duration, between, distinct, text, unique_names
from guided_operator.api.quantity import amount
from guided_operator.api.rule import Rule, rules


class Compile(ApiModel):
    """Limits on compiling one grammar."""

    timeout: Annotated[Duration, between("100ms", "10m")] = Field(
        default="10s",
        description=(
            "Deadline for compiling one grammar, 100ms to 10m; then the grammar worker is killed and the "
            "request gets a 400, or a 503 if no worker was free for half of it. Default: 10s, twenty "
            "times what 99 % of real schemas need."
        ),
    )
    workers: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description=(
            "Number of grammars that compile at the same time, each in its own process; others wait, "
            "first come first served. Default: one per 2 CPUs of the sidecar's CPU limit, at least 2 and "
            "at most 16; 2 without a limit."
        ),
    )
    memory: Annotated[Bytes, between("128Mi", "1Ti", amount)] = Field(
        default="2Gi",
        description=(
            "Memory that one compilation may use, 128Mi to 1Ti, beyond what all workers share; a grammar "
            "that needs more gets a 400. Default: 2Gi, or less if the sidecar's memory limit has no room "
            "for that many compilations at once."
        ),
    )
    max_schema_size: Annotated[Bytes, between("1Ki", "2Mi", amount)] = Field(
        default="256Ki",
        description=(
            "Maximum size of a schema, regex or grammar as text, 1Ki to 2Mi; a larger one gets a 400. "
            "Default: 256Ki; the largest types of the Kubernetes API have 60Ki."
        ),
    )
    max_depth: Annotated[int, Field(ge=4, le=256)] = Field(
        default=64,
        description=(
            "Maximum nesting depth of a schema; a deeper one gets a 400. Default: 64; schemas written by "
            "hand stay below 30."
        ),
    )


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in this namespace."""

    name: Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = Field(
        description="Name of the ConfigMap."
    )
    key: Annotated[str, text(253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(description="Key in the ConfigMap.")


class NamedGrammar(ApiModel):
    """A grammar that requests use by name; it is compiled before the first request."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description='Name that requests use, as vllm_xargs: {"guided_grammar": NAME}. Unique in the list.'
    )
    kind: Literal["JSONSchema", "Regex", "EBNF", "StructuralTag"] = Field(
        description="Kind of the grammar. EBNF: in XGrammar's or in Lark's syntax."
    )
    config_map_key_ref: ConfigMapKey = Field(
        description=(
            "Key of a ConfigMap that holds the grammar's text. All grammars of a model may have 1 MiB "
            "together. A change of the ConfigMap reaches running pods within about two minutes, without "
            "a restart."
        )
    )


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

    placement: Literal["Rank", "Scheduler"] = Field(
        default="Rank",
        description=(
            "Where grammar masks are computed. Rank: on every rank, beside the sampler. Scheduler: in "
            "vLLM's scheduler, as stock vLLM does it; use it to switch guided decoding on the ranks off. "
            "Default: Rank."
        ),
    )
    backend: Choice = Field(
        default="Auto",
        description=(
            "Grammar library. Auto: chosen for each grammar by which keywords each library enforces. "
            "Default: Auto."
        ),
    )
    unsupported_keywords: UnsupportedKeywords = Field(
        default="Route",
        description=(
            "What to do with a schema that has a keyword which the backend does not enforce (with Auto: "
            "Guidance for JSON). Route: use another backend that enforces the whole schema; if there is "
            "none, the request gets a 400 with the path of the keyword. Reject: 400 at once. Allow: as "
            "Route, but where no backend enforces a keyword, serve the request without it, as plain vLLM "
            "does; the response's header x-guidedmodel-unenforced names it, and a metric counts the "
            "request. Default: Route."
        ),
    )
    whitespace: Whitespace = Field(
        default="Flexible",
        description=(
            "Whitespace between JSON tokens, in tool calls too. Flexible: at most 42 characters, enough "
            "for ten levels of four spaces; a model cannot go on with it for ever. Compact: none. "
            "Unbounded: any, as in vLLM. With placement Scheduler, Flexible is as Unbounded. Default: "
            "Flexible."
        ),
    )
    request_options: Annotated[list[RequestOption], Field(max_length=3), AfterValidator(distinct)] = Field(
        default=list(get_args(RequestOption)),
        description=(
            "What a request may choose for itself in vllm_xargs: Backend (guided_backend), "
            "UnsupportedKeywords (guided_unsupported_keywords), Whitespace (guided_whitespace). A "
            "request that chooses anything else gets a 400. An empty list: nothing. Default: all three."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    proof: Literal["Always", "Never"] = Field(
        default="Always",
        description=(
            "Whether a compiled grammar is checked by random walks before anybody sees an answer: for "
            "dead ends, masks that take too long and, for a JSON Schema, text that the schema does not "
            "allow. Default: Always, which adds some milliseconds per new grammar. With Never such "
            "faults show only while generating."
        ),
    )
    compile: Compile = Field(default=Compile(), description="Limits on compiling one grammar.")
    grammars: Annotated[list[NamedGrammar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Grammars that requests use by name. A pod becomes ready once it has compiled and loaded "
            "them. Adding, changing or removing one restarts nothing. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

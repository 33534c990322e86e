"""How guided requests are served: `spec.guidedDecoding`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from guided_contract.backends import Choice
from guided_operator.api.base import ApiModel, Between, BytesBetween, text, unique_names


class Compile(ApiModel):
    """Limits of one grammar's compilation."""

    timeout: Annotated[str, Between("100ms", "10m")] = Field(
        default="10s",
        description=(
            "Deadline of one compilation; past it the worker is killed and the request gets a 400. "
            "Default: 10s, above what 99 % of real schemas need by an order of magnitude."
        ),
    )
    workers: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description=(
            "Grammars that compile at once, each in a process of its own; as many again go on beside them "
            "once they are slow, and one more process stands by. Default: one for each 4 CPUs of the "
            "sidecar's limit, at least 1 and at most 8; without a limit 1."
        ),
    )
    memory: Annotated[str, BytesBetween("128Mi", "1Ti")] = Field(
        default="2Gi",
        description=(
            "What one compilation may take above what every worker shares; past it the request gets a 400. "
            "Default: 2Gi; less where the sidecar's memory limit would not hold all that compile at once."
        ),
    )
    cache_size: Annotated[str, BytesBetween("1Mi", "1Ti")] = Field(
        default="1Gi",
        description=(
            "Compiled grammars that are kept on disk, where they survive the sidecar's restarts; the least "
            "recently used go first. Default: 1Gi, thousands of grammars."
        ),
    )
    max_schema_size: Annotated[str, BytesBetween("1Ki", "2Mi")] = Field(
        default="256Ki",
        description=(
            "The largest schema, regex or grammar that is taken, in bytes of its text; a larger one gets a "
            "400. Default: 256Ki; the types of Kubernetes' API have up to 60Ki."
        ),
    )
    max_depth: Annotated[int, Field(ge=4, le=256)] = Field(
        default=64,
        description=(
            "How deep objects and arrays may stand inside each other in a schema; a deeper one gets a 400. "
            "Default: 64; what people write stays below 30."
        ),
    )


class Consensus(ApiModel):
    """How often the ranks' masks and tokens are compared, where parallelism.tensor is above 1."""

    mode: Literal["Off", "Sampled", "Every"] = Field(
        default="Sampled",
        description=(
            "Sampled: at a sequence's first token, then once per sampleEvery tokens. Every: at every token. "
            "Off: never; quote it in YAML. Default: Sampled, which costs a rank microseconds per step and "
            "lets no lasting difference go unseen."
        ),
    )
    sample_every: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=32,
        description=(
            "Tokens of a sequence from one comparison to the next, with mode Sampled: a difference is found "
            "within so many. Default: 32, one or two lines of text."
        ),
    )


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in this namespace."""

    name: Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = Field(
        description="Name of the ConfigMap."
    )
    key: Annotated[str, text(253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(description="Key in the ConfigMap.")


class NamedGrammar(ApiModel):
    """A grammar that requests ask for by its name, and that is compiled before they come."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description='What requests call it, as vllm_xargs: {"guided_grammar": NAME}; unique in the list.'
    )
    kind: Literal["JSONSchema", "Regex", "EBNF", "StructuralTag"] = Field(
        description="What the text is. EBNF: XGrammar's, or Lark."
    )
    config_map_key_ref: ConfigMapKey = Field(
        description=(
            "Where the text is. All grammars of a model may have 1 MiB in sum. A change of the ConfigMap "
            "reaches running pods within a minute or two, and restarts nothing."
        )
    )


class GuidedDecoding(ApiModel):
    """How requests with a schema, regex, choice or grammar are served."""

    placement: Literal["Rank", "Scheduler"] = Field(
        default="Rank",
        description=(
            "Rank: masks are made beside the sampler on every rank. Scheduler: vLLM's own path, the way "
            "back. Default: Rank."
        ),
    )
    backend: Choice = Field(
        default="Auto",
        description=(
            "The grammar library. Default: Auto, chosen per grammar by what each library can enforce."
        ),
    )
    unsupported_keywords: Literal["Route", "Reject"] = Field(
        default="Route",
        description=(
            "What follows when the backend (with Auto, the one that serves such a grammar cheapest) does not "
            "enforce a keyword of a schema; it is never ignored. Route: the other backend serves the "
            "request if it enforces all of the schema, else the request gets a 400 with the keyword's path. "
            "Reject: that 400 at once. Default: Route."
        ),
    )
    whitespace: Literal["Compact", "Flexible"] = Field(
        default="Flexible",
        description="Whitespace between JSON tokens. Default: Flexible, any, as in vLLM.",
    )
    proof: Literal["Always", "Never"] = Field(
        default="Always",
        description=(
            "Whether random walks through a compiled grammar must show that it has no dead end, no slow "
            "mask and, of a JSON schema, no invalid text, before a rank sees it. Default: Always, some "
            "milliseconds per new grammar; Never leaves all that to show while generating."
        ),
    )
    compile: Compile = Field(default=Compile(), description="Limits of one grammar's compilation.")
    consensus: Consensus = Field(default=Consensus(), description="How often the ranks are compared.")
    on_desync: Literal["FailRequest", "FallBackToScheduler"] = Field(
        default="FailRequest",
        description=(
            "What follows when ranks differ, besides the end of the request that shows it. FailRequest: "
            "nothing. FallBackToScheduler: vLLM's own path serves new guided requests until the engine "
            "restarts. Default: FailRequest, since a difference in one request says little about others, "
            "and vLLM's own path is slower."
        ),
    )
    grammars: Annotated[list[NamedGrammar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Grammars that requests ask for by name. A pod is ready when it has compiled and loaded them; "
            "one that is added, changed or taken away later restarts nothing. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

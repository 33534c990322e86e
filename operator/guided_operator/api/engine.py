"""The vLLM that serves the model: `spec.engine`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api import engine_args, engine_env
from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.rule import Rule, cel_list, cel_text, matches
from guided_operator.api.secret_refs import SecretKey

# A line break or another control character is no part of an option, and some checks end at one.
_WORD: Final = r"^[^\x00-\x1f\x7f]+$"


class EnvSource(ApiModel):
    """Where a variable's value comes from."""

    secret_key_ref: SecretKey = Field(description="The Secret's key that holds the value.")


class EnvVar(ApiModel):
    """An environment variable of the engine container."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description=(
            "The variable's name, one of those in docs/arguments.md; for code of your own, any that begins "
            "with APP_."
        )
    )
    value: Annotated[str, text(4096, least=0)] | None = Field(
        default=None,
        description="The value. Exactly one of value and valueFrom is set. Default: none.",
    )
    value_from: EnvSource | None = Field(
        default=None,
        description="Where the value comes from: for tokens and the like. Default: none.",
    )


class Engine(ApiModel):
    """The vLLM that serves the model."""

    image: Annotated[str, text(512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")] = Field(
        description=(
            "A stock vLLM image of a supported version. No default: it decides the version of vLLM, and "
            "an upgrade of the operator must not change it. `guidedmodel run` takes the installed vLLM "
            "instead."
        )
    )
    version: Annotated[str, text(32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+((rc|\.?post)[0-9]+)?$")] | None = (
        Field(
            default=None,
            description=(
                "The vLLM in the image, such as 0.32.0, where its tag does not tell: an unsupported "
                "one is then refused before any pod starts. Default: what the tag of a vLLM image says, else "
                "what the pods find when they start."
            ),
        )
    )
    plugin: Literal["Inject", "Prebuilt"] = Field(
        default="Inject",
        description=(
            "Inject: plugin and sidecar are copied into the pod from the operator's image. Prebuilt: the "
            "image already holds them. Default: Inject, which needs no image of your own."
        ),
    )
    device: Literal["Auto", "CUDA", "CPU"] = Field(
        default="Auto",
        description=(
            "CUDA and Auto ask for a GPU per rank (nvidia.com/gpu); Auto lets vLLM find "
            "out what to use; CPU asks for none. Default: Auto."
        ),
    )
    max_model_len: Annotated[int, Field(ge=16, le=16_777_216)] | None = Field(
        default=None,
        description=(
            "Longest sequence, prompt and output together, in tokens. Default: the model's own limit; a "
            "smaller one needs less KV cache."
        ),
    )
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Sequences that each engine of a pod works on at once; more wait. Default: vLLM's own choice by "
            "the device's memory; fewer make each faster."
        ),
    )
    gpu_memory_utilization: (
        Annotated[str, text(6, pattern=r"^(0\.(0[1-9]|[1-9])[0-9]{0,2}|1(\.0{1,4})?)$")] | None
    ) = Field(
        default=None,
        description=(
            'Share of each device\'s memory that vLLM may take for weights and KV cache, from "0.01" to '
            '"1", in quotes. Default: vLLM\'s own, 0.92 in 0.32; less where something else shares the device.'
        ),
    )
    runtime_class_name: Annotated[str, text(253)] | None = Field(
        default=None,
        description="RuntimeClass of the pod, for GPU drivers that need one. Default: none.",
    )
    api_key_secret_ref: SecretKey | None = Field(
        default=None,
        description=(
            "The Secret's key with the key that clients send as Authorization: Bearer KEY; others get a 401 "
            "on the routes below /v1. A changed key reaches pods when they start. Default: none: who reaches "
            "the port is served."
        ),
    )
    args: Annotated[list[Annotated[str, text(2048, pattern=_WORD)]], Field(max_length=64)] = Field(
        default=[],
        description=(
            "More arguments for vLLM's API server, one word each, after those made from typed fields: "
            "--NAME=VALUE, or --NAME and the value after it, of the list in docs/arguments.md. Default: "
            "none. They may not repeat what a typed field owns, nor lead out of the pod's isolation."
        ),
    )
    env: Annotated[list[EnvVar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Environment of the engine container, of the list in docs/arguments.md; wins over the "
            "operator's defaults. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


def _typed_later_rule(option: str, field: str, attribute: str) -> Rule:
    """Refuse an argument beside the typed field that came after it."""
    beginning = f"^{option.replace('-', '[-_]').replace('[-_][-_]', '--', 1)}(=.*)?$"
    return Rule(
        ("spec", "engine"),
        "args",
        f"engine.{field} says what {option} says",
        f"!has(self.{field}) || !has(self.args) || !self.args.exists(a, a.matches({cel_text(beginning)}))",
        lambda engine: (
            getattr(engine, attribute) is not None and any(matches(beginning, word) for word in engine.args)
        ),
    )


_ASYNC: Final = "^--(no[-_])?async[-_]scheduling$"

ENGINE_RULES: Final = (
    Rule(
        ("spec", "engine", "args", "*"),
        "",
        "is not on the list of arguments (docs/arguments.md): what typed fields, launcher and plugin own is "
        "not, nor what the pod cannot serve, nor what leads out of its isolation",
        f"!self.startsWith('-') || self.matches({cel_text(engine_args.NUMBER)}) || "
        f"self.replace('_', '-').split('=')[0] in {cel_list(engine_args.ALLOWED)} || "
        f"self.replace('_', '-').split('.')[0] in {cel_list(engine_args.WITH_PARTS)}",
        lambda word: not engine_args.is_allowed(word),
    ),
    Rule(
        ("spec", "engine"),
        "args",
        "must begin with an option: vLLM takes a value without one for the model",
        "!has(self.args) || self.args.size() == 0 || self.args[0].startsWith('--')",
        lambda engine: bool(engine.args) and not engine.args[0].startswith("--"),
    ),
    _typed_later_rule("--max-num-seqs", "maxNumSeqs", "max_num_seqs"),
    _typed_later_rule("--gpu-memory-utilization", "gpuMemoryUtilization", "gpu_memory_utilization"),
    Rule(
        ("spec",),
        "engine.args",
        "with speculative set, speculative.asyncScheduling decides whether scheduling is asynchronous",
        "!has(self.speculative) || !has(self.engine.args) || "
        f"!self.engine.args.exists(a, a.matches({cel_text(_ASYNC)}))",
        lambda spec: spec.speculative is not None and any(matches(_ASYNC, word) for word in spec.engine.args),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "name",
        "the operator sets this variable",
        f"!self.name.matches({cel_text(engine_env.OWNED)})",
        lambda variable: matches(engine_env.OWNED, variable.name),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "name",
        "is not on the list of variables (docs/arguments.md); for code of your own, take a name that begins "
        f"with {engine_env.OWN_PREFIX}",
        f"self.name.matches({cel_text(engine_env.OWNED)}) || self.name.matches({cel_text(engine_env.OWN)}) "
        f"|| self.name in {cel_list(engine_env.ALLOWED)}",
        lambda variable: (
            not (
                matches(engine_env.OWNED, variable.name)
                or matches(engine_env.OWN, variable.name)
                or variable.name in engine_env.ALLOWED
            )
        ),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "value",
        "exactly one of value and valueFrom must be set",
        "has(self.value) != has(self.valueFrom)",
        lambda variable: (variable.value is None) == (variable.value_from is None),
    ),
    Rule(
        ("spec",),
        "engine.env",
        "model.authSecretRef says what HF_TOKEN says",
        "!has(self.model.authSecretRef) || !has(self.engine.env) || "
        "!self.engine.env.exists(e, e.name == 'HF_TOKEN')",
        lambda spec: (
            spec.model.auth_secret_ref is not None
            and any(variable.name == "HF_TOKEN" for variable in spec.engine.env)
        ),
    ),
)

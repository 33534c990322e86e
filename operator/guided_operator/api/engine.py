"""The vLLM server: `spec.engine`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api import engine_args, engine_env
from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.rule import Rule, cel_list, cel_text, matches
from guided_operator.api.secret_refs import SecretKey

# A line break or another control character is no part of an option, and some checks end at one.
_WORD: Final = r"^[^\x00-\x1f\x7f]+$"


class EnvSource(ApiModel):
    """Source of a variable's value."""

    secret_key_ref: SecretKey = Field(description="Key of a Secret that holds the value.")


class EnvVar(ApiModel):
    """An environment variable of the engine container."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description=(
            "Name of the variable: one of those listed in docs/arguments.md or, for your own code, any "
            "name that begins with APP_."
        )
    )
    value: Annotated[str, text(4096, least=0)] | None = Field(
        default=None,
        description="Value of the variable. Exactly one of value and valueFrom is set. Default: none.",
    )
    value_from: EnvSource | None = Field(
        default=None,
        description="Source of the value, for tokens and other secrets. Default: none.",
    )


class Engine(ApiModel):
    """The vLLM server."""

    image: Annotated[str, text(512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")] = Field(
        description=(
            "A stock vLLM image of a supported version. No default: the image decides the version of "
            "vLLM, and an upgrade of the operator must not change it. `guidedmodel run` ignores it and "
            "uses the installed vLLM."
        )
    )
    version: Annotated[str, text(32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+((rc|\.?post)[0-9]+)?$")] | None = (
        Field(
            default=None,
            description=(
                "Version of vLLM in the image (MAJOR.MINOR.PATCH). Set it where the image's tag does not "
                "show it, so that an unsupported version is refused before a pod starts. Default: the "
                "version in the tag of a vLLM image, else what the pods report when they start."
            ),
        )
    )
    plugin: Literal["Inject", "Prebuilt"] = Field(
        default="Inject",
        description=(
            "How plugin and sidecar get into the pod. Inject: they are copied from the operator's image. "
            "Prebuilt: the engine image already contains them. Default: Inject, which needs no image of "
            "your own."
        ),
    )
    device: Literal["Auto", "CUDA", "CPU"] = Field(
        default="Auto",
        description=(
            "Device that the model runs on. CUDA: one GPU per rank (nvidia.com/gpu). CPU: no GPU. Auto: "
            "requests GPUs as CUDA does, and lets vLLM detect the device. Default: Auto."
        ),
    )
    max_model_len: Annotated[int, Field(ge=16, le=16_777_216)] | None = Field(
        default=None,
        description=(
            "Maximum length of a sequence, prompt and output together, in tokens. Default: the model's "
            "own limit; a smaller value needs less KV cache."
        ),
    )
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Maximum number of sequences that each engine of a pod runs at the same time; further "
            "requests wait. Default: vLLM's choice, by the device's memory; a smaller value makes each "
            "sequence faster."
        ),
    )
    gpu_memory_utilization: (
        Annotated[str, text(6, pattern=r"^(0\.(0[1-9]|[1-9])[0-9]{0,2}|1(\.0{1,4})?)$")] | None
    ) = Field(
        default=None,
        description=(
            "Fraction of each device's memory that vLLM may use for weights and KV cache, a quoted string"
            ' from "0.01" to "1". Default: vLLM\'s own; set less where something else shares the device.'
        ),
    )
    runtime_class_name: Annotated[str, text(253)] | None = Field(
        default=None,
        description="RuntimeClass of the pods, for GPU drivers that need one. Default: none.",
    )
    api_key_secret_ref: SecretKey | None = Field(
        default=None,
        description=(
            "Key of a Secret that holds the API key. Clients send it as Authorization: Bearer KEY; "
            "requests without it get a 401 on all routes below /v1. A changed key takes effect when pods "
            "restart. Default: none: whoever reaches the port is served."
        ),
    )
    args: Annotated[list[Annotated[str, text(2048, pattern=_WORD)]], Field(max_length=64)] = Field(
        default=[],
        description=(
            "Further arguments of vLLM's API server, one word per item: --NAME=VALUE, or --NAME followed "
            "by its value. Only options listed in docs/arguments.md are allowed: none that a typed field "
            "sets, and none that breaks the pod's isolation. Default: none."
        ),
    )
    env: Annotated[list[EnvVar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Environment variables of the engine container, from the list in docs/arguments.md. They "
            "override the operator's defaults. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


def _typed_later_rule(option: str, field: str, attribute: str) -> Rule:
    """Refuse an argument beside the typed field that came after it."""
    beginning = f"^{option.replace('-', '[-_]').replace('[-_][-_]', '--', 1)}(=.*)?$"
    return Rule(
        ("spec", "engine"),
        "args",
        f"{option} is set by engine.{field}: remove one of them",
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
        "is not an allowed argument; docs/arguments.md lists those that are. Options that a typed "
        "field sets, that the operator sets, or that break the pod's isolation are not",
        f"!self.startsWith('-') || self.matches({cel_text(engine_args.NUMBER)}) || "
        f"self.replace('_', '-').split('=')[0] in {cel_list(engine_args.ALLOWED)} || "
        f"self.replace('_', '-').split('.')[0] in {cel_list(engine_args.WITH_PARTS)}",
        lambda word: not engine_args.is_allowed(word),
    ),
    Rule(
        ("spec", "engine"),
        "args",
        "must begin with an option: vLLM takes a value without an option for the name of the model",
        "!has(self.args) || self.args.size() == 0 || self.args[0].startsWith('--')",
        lambda engine: bool(engine.args) and not engine.args[0].startswith("--"),
    ),
    _typed_later_rule("--max-num-seqs", "maxNumSeqs", "max_num_seqs"),
    _typed_later_rule("--gpu-memory-utilization", "gpuMemoryUtilization", "gpu_memory_utilization"),
    Rule(
        ("spec",),
        "engine.args",
        "with speculative set, use speculative.asyncScheduling instead of an argument",
        "!has(self.speculative) || !has(self.engine.args) || "
        f"!self.engine.args.exists(a, a.matches({cel_text(_ASYNC)}))",
        lambda spec: spec.speculative is not None and any(matches(_ASYNC, word) for word in spec.engine.args),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "name",
        "this variable is set by the operator",
        f"!self.name.matches({cel_text(engine_env.OWNED)})",
        lambda variable: matches(engine_env.OWNED, variable.name),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "name",
        "is not an allowed variable; docs/arguments.md lists those that are. For your own code "
        f"use a name that begins with {engine_env.OWN_PREFIX}",
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
        "HF_TOKEN is set by model.authSecretRef: remove one of them",
        "!has(self.model.authSecretRef) || !has(self.engine.env) || "
        "!self.engine.env.exists(e, e.name == 'HF_TOKEN')",
        lambda spec: (
            spec.model.auth_secret_ref is not None
            and any(variable.name == "HF_TOKEN" for variable in spec.engine.env)
        ),
    ),
)

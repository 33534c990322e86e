"""What a user asks for: `spec` of a GuidedModel. Each description says unit, default and reason."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.guided import GuidedDecoding
from guided_operator.api.pod_spec import Probes, Resources, SecretKey, Sidecar, Telemetry

Uri = Annotated[
    str,
    text(512),
    Field(
        description=(
            "Where the weights are. hf://ORG/NAME: the Hugging Face hub. pvc://CLAIM/PATH: a folder in a "
            "PersistentVolumeClaim of this namespace, mounted read-only. file:///PATH: a folder in the "
            "engine's image. s3:// and oci:// are not supported yet."
        )
    ),
]
Revision = Annotated[
    str,
    text(128, pattern=r"^[A-Za-z0-9._/-]+$"),
    Field(
        description=(
            "Branch, tag or commit on the hub. Default: the hub's default branch. A commit is the only "
            "one that cannot change under running replicas. Only with hf://."
        )
    ),
]


class ModelSource(ApiModel):
    """Where a draft model comes from."""

    uri: Uri
    revision: Revision | None = None


class Model(ApiModel):
    """The model to serve."""

    uri: Uri
    revision: Revision | None = None
    served_name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] | None = Field(
        default=None,
        description=(
            'What clients send as "model". Default: metadata.name, which is unique in the namespace.'
        ),
    )
    trust_remote_code: bool = Field(
        default=False,
        description=(
            "Whether Python code that comes with the model may run. Default: false, since that code runs "
            "with all rights of the engine."
        ),
    )


class EnvSource(ApiModel):
    """Where a variable's value comes from."""

    secret_key_ref: SecretKey = Field(description="The Secret's key that holds the value.")


class EnvVar(ApiModel):
    """An environment variable of the engine container."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="The variable's name."
    )
    value: Annotated[str, text(4096, least=0)] | None = Field(
        default=None, description="The value. Exactly one of value and valueFrom is set."
    )
    value_from: EnvSource | None = Field(
        default=None,
        description="Where the value comes from: for tokens and the like.",
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
    runtime_class_name: Annotated[str, text(253)] | None = Field(
        default=None,
        description="RuntimeClass of the pod, for GPU drivers that need one. Default: none.",
    )
    args: Annotated[list[Annotated[str, text(2048)]], Field(max_length=64)] = Field(
        default=[],
        description=(
            "More arguments for vLLM's API server, one word each, after those made from typed fields. "
            "Default: none. They may not repeat what a typed field owns."
        ),
    )
    env: Annotated[list[EnvVar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Environment of the engine container; wins over the operator's defaults. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class Parallelism(ApiModel):
    """How the model is spread over devices."""

    tensor: Annotated[int, Field(ge=1, le=128)] = Field(
        default=1,
        description=(
            "Ranks that share each layer. Default: 1. GPUs per pod are tensor times pipeline times data; "
            "at most about 128, the slots for heartbeats."
        ),
    )
    pipeline: Annotated[int, Field(ge=1, le=128)] = Field(
        default=1, description="Stages that the layers are parted into; the last one samples. Default: 1."
    )
    data: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Engines in a pod that take requests in turn, each with all layers. Default: 1.",
    )

    @property
    def ranks(self) -> int:
        """Workers in a pod, of all its engines."""
        return self.tensor * self.pipeline * self.data


class LogitsProcessor(ApiModel):
    """A stateful logits processor, made once per sequence by its factory."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="What requests call it; unique in the list."
    )
    factory: Annotated[
        str,
        text(
            256,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
        ),
    ] = Field(description='The class that makes it, as "package.module:Class", importable in the engine.')
    params: Annotated[dict[str, Any], Field(max_length=32)] = Field(
        default={}, description="Keyword arguments of the factory, any JSON. Default: none."
    )
    apply_by_default: bool = Field(
        default=True,
        description="Whether requests that do not name it get it too. Default: true.",
    )


class Speculative(ApiModel):
    """Speculative decoding: a cheap guess of several tokens, checked in one step."""

    method: Literal["NGram", "DraftModel"] = Field(
        description="NGram: guesses from the prompt's own text. DraftModel: a smaller model guesses."
    )
    num_tokens: Annotated[int, Field(ge=1, le=32)] = Field(
        description=(
            "Tokens guessed per step. No default: the best value depends on model and traffic; 3 to 5 is "
            "usual."
        )
    )
    draft_model: ModelSource | None = Field(
        default=None,
        description=("The smaller model, with the same tokenizer. Needed by DraftModel, refused for NGram."),
    )
    async_scheduling: Literal["Auto", "On", "Off"] = Field(
        default="Auto",
        description=(
            "Whether the next step is scheduled while the last one runs. Default: Auto, on where vLLM "
            "supports it. Quote On and Off in YAML. NGram runs on the CPU between steps and forces Off."
        ),
    )


class GuidedModelSpec(ApiModel):
    """A model served by vLLM, with guided decoding on every rank."""

    model: Model = Field(description="The model to serve.")
    engine: Engine = Field(description="The vLLM that serves it.")
    parallelism: Parallelism = Field(default=Parallelism(), description="How it is spread over devices.")
    guided_decoding: GuidedDecoding = Field(default=GuidedDecoding(), description="How guided requests run.")
    logits_processors: Annotated[
        list[LogitsProcessor], Field(max_length=16), AfterValidator(unique_names)
    ] = Field(
        default=[],
        description="Logits processors, applied in this order. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    speculative: Speculative | None = Field(default=None, description="Speculative decoding. Absent: off.")
    replicas: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1, description="Pods. Default: 1. 0 keeps everything but the pods."
    )
    resources: Resources = Field(
        default=Resources(),
        description=("CPU and memory of the engine container. Default: none. GPUs follow from parallelism."),
    )
    probes: Probes = Field(default=Probes(), description="Deadlines of health checks.")
    telemetry: Telemetry | None = Field(default=None, description="Where traces go. Absent: no traces.")
    sidecar: Sidecar = Field(default=Sidecar(), description="The process beside the engine.")

"""The operator's settings: the one place that reads its environment.

Each field's variable is GUIDEDMODEL_ and the field's name in capitals, but for what Kubernetes' downward API
usually calls otherwise: POD_NAME and POD_NAMESPACE.
"""

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

_PREFIX: Final = "GUIDEDMODEL_"
_VARIABLES: Final = {"namespace": "POD_NAMESPACE", "pod_name": "POD_NAME"}

_NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
_Beginning = Annotated[str, Field(min_length=1, max_length=512)]
_NAME: Final = "[A-Za-z_][A-Za-z0-9_]*"
# One factory of logits processors, or all of a package, of a module, or of everything.
_Factories = Annotated[str, Field(max_length=256, pattern=rf"^(\*|{_NAME}(\.{_NAME})*(\.\*|:\*|:{_NAME}))$")]

# An option or a variable, or all that begin so.
_Argument = Annotated[str, Field(max_length=128, pattern=r"^(--[a-z0-9-]*|[A-Za-z_][A-Za-z0-9_]*)\*?$|^\*$")]


class SettingsError(Exception):
    """A variable is missing or wrong; the message has one line for each."""


def _listed(value: Any) -> Any:
    """Return the items of a list that is written with commas, each once."""
    if not isinstance(value, str):
        return value
    return tuple(dict.fromkeys(part for part in map(str.strip, value.split(",")) if part))


class OperatorSettings(BaseModel):
    """What differs between installations. `OperatorSettings()` reads the environment; arguments win over it.

    Raises
    ------
    SettingsError
        A variable is missing or wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    plugin_image: Annotated[str, Field(min_length=1)]
    """Our own image, which pods copy the plugin from. No default: it is the one the operator runs from."""
    plugin_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    """When nodes pull it for pods. Default: Kubernetes', by the image's tag."""
    pull_secrets: Annotated[tuple[_Beginning, ...], BeforeValidator(_listed), Field(max_length=16)] = ()
    """Secrets that all pods pull images with, separated by commas, beside their own. They have to be in each
    namespace with GuidedModels. Default: none."""
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of the Lease. No default: two operators in two namespaces would both lead."""
    pod_name: str = Field(default_factory=socket.gethostname)
    """This replica's name, for people who read the Lease. Default: the host's, in a pod the pod's."""
    namespaces: Annotated[tuple[_NamespaceName, ...], BeforeValidator(_listed), Field(max_length=100)] = ()
    """Namespaces whose GuidedModels are served, separated by commas. Default: all of the cluster's."""
    allowed_images: Annotated[tuple[_Beginning, ...], BeforeValidator(_listed), Field(max_length=100)] = ()
    """Beginnings of images that engines may run, separated by commas, up to a "/", ":" or "@", such as
    docker.io/vllm. Default: all."""
    allowed_models: Annotated[tuple[_Beginning, ...], BeforeValidator(_listed), Field(max_length=100)] = ()
    """Beginnings of URIs of what engines may load, separated by commas, up to a "/", such as hf://meta-llama.
    Default: all."""
    remote_code: Literal["Allow", "Refuse"] = "Allow"
    """Whether model.trustRemoteCode may be true, and a claim may hold compiled code. Default: Allow; Refuse
    where images alone bring code."""
    proxies: Literal["Allow", "Refuse"] = "Refuse"
    """Whether engine.env may hold proxies and CAs while allowed_models limits what comes from the hub.
    Default: Refuse: they decide who is taken for the hub."""
    arguments_allow: Annotated[tuple[_Argument, ...], BeforeValidator(_listed), Field(max_length=500)] = ()
    """Options and variables that engine.args and engine.env may hold, separated by commas, such as
    --max-model-len, --kv-cache-*, NCCL_*; a "*" at the end is all that begin so. Default: all but those that
    the operator reserves."""
    arguments_deny: Annotated[tuple[_Argument, ...], BeforeValidator(_listed), Field(max_length=500)] = ()
    """Options and variables that they may not hold, even if they are allowed. Default: none."""
    processor_factories: Annotated[
        tuple[_Factories, ...], BeforeValidator(_listed), Field(min_length=1, max_length=100)
    ] = ("guided_engine.*",)
    """Factories of logits processors that resources may name, separated by commas, such as
    acme.processors:Ban; with a "*" at its end all that begin so: acme.processors:*, acme.*, *. Default:
    guided_engine.*, what ships with the plugin; others are code that somebody has to have looked at."""
    user_ids: Literal["Fixed", "Platform"] = "Fixed"
    """Whose numeric user pods run as: Fixed, ours (10001); Platform, what OpenShift gives the namespace.
    Default: Fixed."""
    hub_endpoint: Annotated[str, Field(pattern=r"^https?://\S+$|^$")] = ""
    """URL of a mirror of the Hugging Face hub, for all pods. Default: none, the hub itself."""
    workers: Annotated[int, Field(ge=1, le=64)] = 16
    """GuidedModels that are worked on at once. Default: 16; one waits for the API server most of its time."""
    health_host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks from outside
    """Address of /healthz, /readyz and /metrics. Default: all of the pod's."""
    health_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz, /readyz and /metrics; 0: any free one. Default: 8080."""
    otlp_endpoint: Annotated[str, Field(pattern=r"^https?://\S+$|^$")] = ""
    """Base URL of an OTLP/HTTP collector for a trace of each pass. Default: none, no traces are made."""
    trace_sampling: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Share of passes that are traced. Default: 1, all; a pass happens when something changed."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log: lines for people, or a JSON object each. Default: text."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level of what is logged. Default: INFO, a line per change to the cluster."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            lines = [f"{variable_of(str(fault['loc'][0]))}: {fault['msg']}" for fault in error.errors()]
            raise SettingsError("\n".join(lines)) from error

    @model_validator(mode="before")
    @classmethod
    def _read_environment(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        found = {
            name: os.environ[variable_of(name)]
            for name in cls.model_fields
            if os.environ.get(variable_of(name))
        }
        return found | dict(values)


def variable_of(field: str) -> str:
    """Return the environment variable of a field."""
    return _VARIABLES.get(field, _PREFIX + field.upper())

"""The operator's settings: the one place that reads its environment.

Each field's variable is GUIDEDMODEL_ and the field's name in capitals, but for what Kubernetes' downward API
usually calls otherwise: POD_NAME and POD_NAMESPACE.
"""

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

_PREFIX: Final = "GUIDEDMODEL_"
_VARIABLES: Final = {"namespace": "POD_NAMESPACE", "pod_name": "POD_NAME"}


class SettingsError(Exception):
    """A variable is missing or wrong; the message has one line for each."""


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
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of the Lease. No default: two operators in two namespaces would both lead."""
    pod_name: str = Field(default_factory=socket.gethostname)
    """This replica's name, for people who read the Lease. Default: the host's, in a pod the pod's."""
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    """GuidedModels that are worked on at once. Default: 4; one waits for the API server most of its time."""
    health_host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks from outside
    """Address of /healthz and /readyz. Default: all of the pod's."""
    health_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz and /readyz; 0: any free one. Default: 8080."""
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

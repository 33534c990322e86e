"""The sidecar container: `spec.sidecar`."""

from pydantic import Field

from guided_operator.api.base import ApiModel
from guided_operator.api.resources import Resources


class Sidecar(ApiModel):
    """The sidecar container: grammar workers, telemetry and health."""

    resources: Resources = Field(
        default=Resources(),
        description=(
            "Resources of the sidecar container. Default, of each that has no value here: requests of 100m "
            "CPU and 512Mi memory, and a memory limit of 4Gi."
        ),
    )

"""References to Secrets in the same namespace: `...SecretKeyRef` to a key, `...SecretRef` to a whole one."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, text


class SecretKey(ApiModel):
    """A key of a Secret in this namespace."""

    name: Annotated[str, text(253)] = Field(description="Name of the Secret.")
    key: Annotated[str, text(253)] = Field(description="Key in the Secret.")


class SecretName(ApiModel):
    """A Secret in this namespace."""

    name: Annotated[str, text(253)] = Field(description="Name of the Secret.")

"""What is served: `spec.model` and `spec.lora`, and how other weights are named."""

import re
from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, ByName, SecretKey, text
from guided_operator.api.rule import Rule, cel_text, rules

_PART: Final = "[A-Za-z0-9_][A-Za-z0-9._@+-]*"  # never "." or "..", nor a hidden folder
_ON_HUB: Final = "[A-Za-z0-9_][A-Za-z0-9._-]*"
_URI: Final = (
    f"^(hf://{_ON_HUB}(/{_ON_HUB})?|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/{_PART})*|file://(/{_PART})+)/?$"
)
# A branch, a tag or a commit, as git lets them be called.
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*"
# What else the hub may take for a revision: git looks for pr/7 below refs/, too.
_REF: Final = r"(?i)^(refs/.*|pr/[0-9]+)$"
MODELS_DIR: Final = "/models"  # where pods mount claims of models, each by its name

Uri = Annotated[
    str,
    text(512, pattern=_URI),
    Field(
        description=(
            "Location of the weights: hf://ORG/NAME on the Hugging Face hub, pvc://CLAIM/PATH in a "
            "PersistentVolumeClaim of this namespace, or file:///PATH in the engine's image. A branch, "
            "tag or commit is written as revision."
        )
    ),
]


class ModelSource(ApiModel):
    """Source of a draft model."""

    model_config = rules(
        Rule(
            "revision",
            "goes with hf:// alone, and must be a branch, a tag or a commit: refs/... and pr/... may be "
            "anybody's, such as a pull request of a stranger; merge it, and name the branch",
            "!has(self.revision) || (self.uri.startsWith('hf://') && "
            f"!self.revision.matches({cel_text(_REF)}))",
        )
    )

    uri: Uri
    revision: Annotated[str, text(128, pattern=f"^{_NAME}(/{_NAME})*$")] | None = None
    """Branch, tag or commit on the Hugging Face hub, never refs/... or pr/NUMBER; only a commit cannot change
    under running replicas. Default: the hub's default branch."""


class Model(ModelSource):
    """The model to serve."""

    served_name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] | None = None
    """Name that clients send as "model". Default: metadata.name, which is unique in the namespace."""
    auth_secret_key_ref: SecretKey | None = None
    """Key of a Secret that holds a Hugging Face token. A changed token takes effect when pods restart. Only
    with a hf:// URI of the model, the draft model or an adapter. Default: none."""
    trust_remote_code: bool = False
    """Whether to run Python code that comes with the model. Default: false, because that code has all rights
    of the engine."""


class Adapter(ApiModel):
    """A LoRA adapter, loaded when the engine starts."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]
    """Name that clients send as "model" to use the adapter. Unique in the list."""
    uri: Uri


class Lora(ApiModel):
    """LoRA adapters of the model."""

    adapters: Annotated[ByName[Adapter], Field(min_length=1, max_length=256)]
    """LoRA adapters; clients see each as a model of its own. All are loaded when the engine starts. From the
    hub (hf://) an adapter is its repository's default branch: to pin one, serve it from a claim. One of a
    rank above 16 needs --max-lora-rank in engine.args."""


def is_uri(text: str) -> bool:
    """Return whether a text is the location of weights."""
    return re.fullmatch(_URI.strip("^$"), text) is not None

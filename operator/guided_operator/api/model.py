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
            "Location of the weights: hf://ORG/NAME on the Hugging Face Hub, pvc://CLAIM/PATH in a "
            "PersistentVolumeClaim of this namespace, or file:///PATH in the engine image."
        )
    ),
]


class ModelSource(ApiModel):
    """Source of a draft model."""

    model_config = rules(
        Rule(
            "revision",
            "is allowed only with an hf:// URI, and must be a branch, tag or commit: anybody can open a pull "
            "request, which is what refs/... and pr/... name; merge it, and set the branch",
            "!has(self.revision) || (self.uri.startsWith('hf://') && "
            f"!self.revision.matches({cel_text(_REF)}))",
        )
    )

    uri: Uri
    revision: Annotated[str, text(128, pattern=f"^{_NAME}(/{_NAME})*$")] | None = None
    """Branch, tag or commit on the Hugging Face Hub, not refs/... or pr/NUMBER. Allowed only with an hf://
    URI. A branch or tag can move while replicas run. Default: the Hub's default branch."""


class Model(ModelSource):
    """The model to serve."""

    served_name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] | None = None
    """Model name that clients send as "model". Default: metadata.name."""
    auth_secret_key_ref: SecretKey | None = None
    """Key of a Secret that holds a Hugging Face token. Allowed only if the model, the draft model or an
    adapter has an hf:// URI. Pods read a changed token when they restart. Default: none."""
    trust_remote_code: bool = False
    """Whether to run Python code from the model's repository, with all rights of the engine. Default:
    false."""


class Adapter(ApiModel):
    """A LoRA adapter, loaded when the engine starts."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]
    """Name that clients send as "model" to use the adapter. Unique in the list, and not the model's served
    name."""
    uri: Uri


class Lora(ApiModel):
    """LoRA adapters of the model."""

    adapters: Annotated[ByName[Adapter], Field(min_length=1, max_length=256)]
    """LoRA adapters, all loaded when the engine starts. Clients use each as a model of its own. An adapter
    from the Hub (hf://) uses the default branch of its repository: to pin a version, serve it from a
    PersistentVolumeClaim. A rank above 16 needs --max-lora-rank in engine.args."""


def is_uri(text: str) -> bool:
    """Return whether a text is the location of weights."""
    return re.fullmatch(_URI.strip("^$"), text) is not None

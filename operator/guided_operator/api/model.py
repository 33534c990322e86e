"""What is served: `spec.model`, and how other weights are named."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.rule import Rule, cel_text, matches
from guided_operator.api.secret_refs import SecretKey

_PART: Final = "[A-Za-z0-9_][A-Za-z0-9._@+-]*"  # never "." or "..", nor a hidden folder
_URI: Final = (
    f"^(hf://{_PART}(/{_PART})?|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/{_PART})*|file://(/{_PART})+)$"
)
_SCHEME: Final = "^(hf|pvc|file)://"

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
    auth_secret_ref: SecretKey | None = Field(
        default=None,
        description=(
            "The Secret's key with the token for the Hugging Face hub, for models that are private or gated; "
            "engine and sidecar get it as HF_TOKEN. A changed token reaches pods when they start. Default: "
            "none. Only where something comes from hf://."
        ),
    )
    trust_remote_code: bool = Field(
        default=False,
        description=(
            "Whether Python code that comes with the model may run. Default: false, since that code runs "
            "with all rights of the engine."
        ),
    )


def uri_rules(*at: str) -> tuple[Rule, ...]:
    """Return what must hold of the node at `at`, which has a uri."""
    return (
        Rule(
            at,
            "uri",
            "the scheme must be hf://, pvc:// or file://; s3:// and oci:// are not supported yet",
            f"self.uri.matches({cel_text(_SCHEME)})",
            lambda source: not matches(_SCHEME, source.uri),
        ),
        Rule(
            at,
            "uri",
            "must be hf://ORG/NAME, pvc://CLAIM/PATH or file:///PATH, without . or .. in a path",
            f"!self.uri.matches({cel_text(_SCHEME)}) || self.uri.matches({cel_text(_URI)})",
            lambda source: matches(_SCHEME, source.uri) and not matches(_URI, source.uri),
        ),
    )


def source_rules(*at: str) -> tuple[Rule, ...]:
    """Return what must hold of the node at `at`, which has a uri and perhaps a revision."""
    return (
        *uri_rules(*at),
        Rule(
            at,
            "revision",
            "only a model from the hub (hf://) has a revision",
            "!has(self.revision) || self.uri.startsWith('hf://')",
            lambda source: source.revision is not None and not source.uri.startswith("hf://"),
        ),
    )


MODEL_RULES: Final = (
    *source_rules("spec", "model"),
    Rule(
        ("spec",),
        "model.authSecretRef",
        "nothing comes from the hub (hf://), so there is nothing to give the token to",
        "!has(self.model.authSecretRef) || self.model.uri.startsWith('hf://') || "
        "(has(self.speculative) && has(self.speculative.draftModel) && "
        "self.speculative.draftModel.uri.startsWith('hf://')) || "
        "(has(self.lora) && self.lora.adapters.exists(a, a.uri.startsWith('hf://')))",
        lambda spec: (
            spec.model.auth_secret_ref is not None
            and not any(uri.startswith("hf://") for uri in spec.uris.values())
        ),
    ),
)

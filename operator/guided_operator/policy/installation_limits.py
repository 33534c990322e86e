"""What an installation allows: which images and models, and whether models may run their own code.

Set by who runs the operator; a GuidedModel outside of it gets the condition Compatible=False, and no pods.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from guided_operator.api import GuidedModel, Problem

_HUB: Final = "docker.io"  # what an image without a registry means


@dataclass(frozen=True, slots=True)
class Limits:
    """Empty tuples permit everything.

    Parameters
    ----------
    images
        Beginnings of images, up to a "/", ":" or "@": a registry, a folder of one, or an image.
    models
        Beginnings of URIs of models, draft models and adapters, up to a "/".
    remote_code
        Whether model.trustRemoteCode may be true.
    """

    images: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    remote_code: Literal["Allow", "Refuse"] = "Allow"

    def check(self, gm: GuidedModel) -> list[Problem]:
        """Return every reason for which this installation does not run the model."""
        return [problem for find in _CHECKS for problem in find(self, gm)]


NO_LIMITS: Final = Limits()


def _image_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    image = gm.spec.engine.image
    if limits.images and not any(_is_image_below(image, allowed) for allowed in limits.images):
        yield Problem(
            "spec.engine.image",
            f"this operator allows only images from {', '.join(limits.images)}",
        )


def _model_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    for field, uri in gm.spec.uris.items():
        if limits.models and not any(_is_below(uri, allowed, "/") for allowed in limits.models):
            yield Problem(field, f"this operator allows only models from {', '.join(limits.models)}")


def _code_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    if limits.remote_code == "Refuse" and gm.spec.model.trust_remote_code:
        yield Problem(
            "spec.model.trustRemoteCode",
            "this operator does not allow code that comes with a model: set model.trustRemoteCode to false",
        )


def _is_image_below(image: str, allowed: str) -> bool:
    image, allowed = _with_registry(image), _with_registry(allowed)
    # A registry's name may be followed by its port, which makes it another registry.
    return _is_below(image, allowed, "/:@" if "/" in allowed else "/")


def _is_below(name: str, allowed: str, boundaries: str) -> bool:
    rest = name.removeprefix(allowed)
    return name.startswith(allowed) and (not rest or allowed.endswith("/") or rest[0] in boundaries)


def _with_registry(image: str) -> str:
    """Return an image, or the beginning of one, with the registry that a container runtime takes it for."""
    first, slash, _ = image.partition("/")
    if "." in first or (":" in first and slash) or first == "localhost":
        return image
    return f"{_HUB}/{image}" if slash else f"{_HUB}/library/{image}"


_CHECKS: Final[tuple[Callable[[Limits, GuidedModel], Iterable[Problem]], ...]] = (
    _image_foreign,
    _model_foreign,
    _code_foreign,
)

"""What an installation allows: images, models, code, and arguments of vLLM.

Set by who runs the operator; a GuidedModel outside of it gets the condition Compatible=False, and no pods.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from guided_operator.api import GuidedModel, Problem, words
from guided_operator.api.model import MODELS_DIR, is_uri
from guided_operator.policy.arguments import ALL_ARGUMENTS, ArgumentLimits, is_among, repositories

_HUB: Final = "docker.io"  # what an image without a registry means


@dataclass(frozen=True, slots=True)
class Limits:
    """Empty tuples permit everything.

    Parameters
    ----------
    images
        Beginnings of images, up to a "/", ":" or "@": a registry, a folder of one, or an image.
    models
        Beginnings of URIs of models, draft models and adapters, up to a "/"; arguments that name a
        repository, and a claim with downloads, are under them as well.
    remote_code
        Whether model.trustRemoteCode may be true, and a claim may hold compiled code.
    proxies
        Whether engine.env may say by what way, and trusting whom, the hub is reached where `models` says
        what may come from there.
    arguments
        What engine.args and engine.env may hold, beside what is reserved.
    processor_factories
        Factories of logits processors, each as the resource names it, or with a "*" at its end for all that
        begin so: "acme.processors:*", "acme.*".
    """

    images: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    remote_code: Literal["Allow", "Refuse"] = "Allow"
    proxies: Literal["Allow", "Refuse"] = "Refuse"
    arguments: ArgumentLimits = ALL_ARGUMENTS
    processor_factories: tuple[str, ...] = ()

    @property
    def concern_pods(self) -> bool:
        """Whether anything is limited that pods are made from."""
        limited = (self.images, self.models, self.arguments.allow, self.arguments.deny)
        every_factory = not self.processor_factories or "*" in self.processor_factories
        return any(limited) or self.remote_code == "Refuse" or not every_factory

    def check(self, gm: GuidedModel) -> list[Problem]:
        """Return every reason for which this installation does not run the model."""
        return [*self.arguments.check(gm), *(problem for find in _CHECKS for problem in find(self, gm))]


NO_LIMITS: Final = Limits()


def _image_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    image = gm.spec.engine.image
    if limits.images and not any(_is_image_below(image, allowed) for allowed in limits.images):
        yield Problem(
            "spec.engine.image",
            f"this operator allows only images from {', '.join(limits.images)}",
        )


def _model_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    """Find what comes from elsewhere: weights, what arguments name, and a claim that may hold anything."""
    told = f"this operator allows only models from {', '.join(limits.models)}"
    for field, uri in gm.spec.uris.items():
        if not _is_model_allowed(limits, uri):
            yield Problem(field, told)
    for index, option, name in repositories(gm):
        if not _is_model_allowed(limits, _uri(name)):
            yield Problem(
                f"spec.engine.args[{index}]",
                f"--{option} names {name!r}, and {told}: use one of those, or remove the argument to use the "
                "model's own",
            )
    claim = gm.spec.storage.hub.persistent_volume_claim
    if claim is not None and not _is_model_allowed(limits, f"pvc://{claim.claim_name}"):
        yield Problem(
            "spec.storage.hub.persistentVolumeClaim.claimName",
            f"this claim may hold other models, and {told}: remove it, so that each pod downloads to its "
            "node's storage",
        )


def _way_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    """Find variables that say by what way, and trusting whom, the hub is reached."""
    if not limits.models or limits.proxies == "Allow":
        return
    for index, variable in enumerate(gm.spec.engine.env):
        if variable.name in words.WAY_TO_THE_HUB:
            yield Problem(
                f"spec.engine.env[{index}].name",
                f"{variable.name} can replace the Hub by another server, and this operator limits models: "
                "remove it, or ask whoever runs the operator to set limits.proxies to Allow",
            )


def _code_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    if limits.remote_code == "Refuse" and gm.spec.model.trust_remote_code:
        yield Problem(
            "spec.model.trustRemoteCode",
            "this operator does not allow code from models: set model.trustRemoteCode to false",
        )
    if limits.remote_code == "Refuse" and gm.spec.storage.cache.persistent_volume_claim is not None:
        yield Problem(
            "spec.storage.cache.persistentVolumeClaim",
            "the engine runs the contents of this claim as code, and this operator allows only code of "
            "images: remove it, and each pod compiles in its own storage",
        )


def _factory_foreign(limits: Limits, gm: GuidedModel) -> Iterator[Problem]:
    """Find code of the image, or of the engine's own libraries, that nobody has allowed to be run by name."""
    for index, processor in enumerate(gm.spec.logits_processors):
        if limits.processor_factories and not is_among(processor.factory, limits.processor_factories):
            yield Problem(
                f"spec.logitsProcessors[{index}].factory",
                f"{processor.factory} is code that runs in the engine, and this operator allows only "
                f"{', '.join(limits.processor_factories)}: use one of those, or ask whoever runs the "
                "operator to add it to limits.processorFactories",
            )


def _is_model_allowed(limits: Limits, uri: str) -> bool:
    return not limits.models or (
        is_uri(uri) and any(_is_below(uri, allowed, "/") for allowed in limits.models)
    )


def _uri(name: str) -> str:
    """Return what vLLM loads by a name: a claim where it is mounted, another folder, or a repository."""
    if name.startswith(f"{MODELS_DIR}/"):
        return f"pvc://{name.removeprefix(f'{MODELS_DIR}/')}"
    return f"file://{name}" if name.startswith("/") else f"hf://{name}"


def _is_image_below(image: str, allowed: str) -> bool:
    image, allowed = _in_full(image), _with_registry(allowed)
    # A registry's name may be followed by its port, which makes it another registry.
    return _is_below(image, allowed, "/:@" if "/" in allowed else "/")


def _is_below(name: str, allowed: str, boundaries: str) -> bool:
    rest = name.removeprefix(allowed)
    return name.startswith(allowed) and (not rest or allowed.endswith("/") or rest[0] in boundaries)


def _in_full(image: str) -> str:
    """Return an image as a container runtime takes it: a name without a folder is the hub's own image."""
    full = _with_registry(image) if "/" in image else f"{_HUB}/{image}"
    registry, _, rest = full.partition("/")
    return full if registry != _HUB or "/" in rest else f"{_HUB}/library/{rest}"


def _with_registry(image: str) -> str:
    """Return an image, or the beginning of one, with the registry that a container runtime takes it for."""
    first, slash, _ = image.partition("/")
    # As distribution/reference: folders of the hub have no capitals, so a first part with one is a registry.
    if "." in first or first == "localhost" or (slash and (":" in first or first != first.lower())):
        return image
    return f"{_HUB}/{image}" if slash else f"{_HUB}/library/{image}"


_CHECKS: Final[tuple[Callable[[Limits, GuidedModel], Iterable[Problem]], ...]] = (
    _image_foreign,
    _model_foreign,
    _way_foreign,
    _code_foreign,
    _factory_foreign,
)

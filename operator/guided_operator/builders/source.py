"""Where a model comes from: `hf://ORG/NAME`, `pvc://CLAIM/PATH` or `file:///PATH`."""

from guided_operator.api import GuidedModel
from guided_operator.api.resources import Claim
from guided_operator.builders.pod_paths import Site


def location(uri: str, site: Site) -> str:
    """Return what vLLM gets: a path, or a name on the hub."""
    claim = claim_of(uri)
    _, _, rest = uri.rstrip("/").partition("://")
    return rest if claim is None else site.models(claim) + rest.removeprefix(claim)


def claim_of(uri: str) -> str | None:
    """Return the name of the claim that holds a model, if one does."""
    scheme, _, rest = uri.rstrip("/").partition("://")
    return rest.partition("/")[0] if scheme == "pvc" else None


def is_local(uri: str) -> bool:
    """Say whether nothing has to be downloaded."""
    return not uri.startswith("hf://")


def downloads(gm: GuidedModel) -> bool:
    """Say whether the pod has to download anything: the model, the draft model if any, the adapters."""
    return not all(map(is_local, gm.spec.uris.values()))


def claims(gm: GuidedModel) -> list[str]:
    """Return the names of the claims with what the pod loads, each once."""
    return sorted({claim for uri in gm.spec.uris.values() if (claim := claim_of(uri))})


def compile_cache(gm: GuidedModel, site: Site) -> Claim | None:
    """Return the claim that keeps what the engine compiles, if any; a laptop has its user's own folders."""
    return gm.spec.storage.cache.persistent_volume_claim if site.in_cluster else None

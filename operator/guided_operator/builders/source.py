"""Where a model comes from, taken apart: `hf://ORG/NAME`, `pvc://CLAIM/PATH` or `file:///PATH`."""

from dataclasses import dataclass

from guided_operator.api import GuidedModel
from guided_operator.api.resources import Claim
from guided_operator.builders.pod_paths import Site


@dataclass(frozen=True, slots=True)
class Source:
    """A model's location. `claim` is set for a volume, `path` is the rest of the URI."""

    scheme: str
    claim: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether nothing has to be downloaded."""
        return self.scheme != "hf"

    def location(self, site: Site) -> str:
        """Return what vLLM gets: a path, or a name on the hub."""
        if self.scheme != "pvc":
            return self.path
        folder = site.models(self.claim)
        return f"{folder}/{self.path}" if self.path else folder


def parse_source(uri: str) -> Source:
    """Take a URI apart that the API has accepted."""
    scheme, _, rest = uri.rstrip("/").partition("://")
    if scheme != "pvc":
        return Source(scheme, "", rest)
    claim, _, path = rest.partition("/")
    return Source(scheme, claim, path)


def sources(gm: GuidedModel) -> list[Source]:
    """Return everything that the pod loads: the model, the draft model if any, the adapters."""
    return [parse_source(uri) for uri in gm.spec.uris.values()]


def downloads(gm: GuidedModel) -> bool:
    """Say whether the pod has to download anything."""
    return not all(source.is_local for source in sources(gm))


def compile_cache(gm: GuidedModel, site: Site) -> Claim | None:
    """Return the claim that keeps what the engine compiles, if any; a laptop has its user's own folders."""
    return gm.spec.storage.cache.persistent_volume_claim if site.cache else None


def claims(gm: GuidedModel) -> list[str]:
    """Return the names of the claims that the pod mounts, each once."""
    return sorted({source.claim for source in sources(gm) if source.claim})

"""What a worker is to compile for a request, and what ranks are to load of what it compiled."""

from collections.abc import Iterable

from guided_contract.config import PodConfig
from guided_contract.wire import Load, Prepare, Prepared
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.prepare.cache_keys import choice
from guided_sidecar.grammar.worker_messages import Done, Job, Ready, Unenforced


def job_of(  # noqa: PLR0913, PLR0917 - all that a compile depends on
    request: Prepare, key: str, spec: str, facts: Ready, pod: PodConfig, memory_bytes: int
) -> Job:
    """Return what a worker is to do for a request; `spec` is its text as it is taken."""
    guided = pod.guided_decoding
    return Job(
        key=key,
        kind=request.kind,
        spec=spec,
        **choice(request, pod)._asdict(),
        limits=guided.compile,
        unmeasured=trust.unmeasured(facts.versions),
        is_proven=guided.proof == "Always",
        timeout_s=guided.compile.timeout_s,
        memory_bytes=memory_bytes,
        tokenizer=facts.tokenizer,
    )


def load_of(key: str, done: Done) -> Load:
    """Return what a rank is to load of a grammar."""
    return Load(
        key=key,
        backend=done.backend,
        artifact=done.artifact,
        sha256=done.sha256,
        spec=done.spec,
        positions=done.positions,
        whitespace=done.whitespace,
        is_tagged=done.is_tagged,
    )


def prepared(number: int, key: str, done: Done, *, is_proven: bool = True) -> Prepared:
    """Return what an API server is told of the Prepare of that number."""
    paths = [one.path for one in done.unenforced]
    return Prepared(id=number, key=key, backend=done.backend, unenforced=paths, is_proven=is_proven)


def keywords(unenforced: Iterable[Unenforced]) -> str:
    """Return the keywords of what is not enforced, as spans have them."""
    return ",".join(sorted({one.keyword for one in unenforced}))

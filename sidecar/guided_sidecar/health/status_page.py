"""The /status page, made of one reading and its verdict."""

from collections.abc import Iterable
from typing import Final

from guided_contract.status import (
    Failure,
    LibraryStatus,
    PodStatus,
    ProcessorStatus,
    RankStatus,
    SpeculationStatus,
    WorkersStatus,
)
from guided_contract.wire import Hello, Patch
from guided_sidecar.grammar import trust
from guided_sidecar.health.readiness import Reading, Verdict, exhausted

_WORST: Final = ("Applied", "Skipped", "Failed")


def page(reading: Reading, verdict: Verdict) -> PodStatus:
    """Return what the operator reads."""
    launcher = reading.launcher()
    agreement = reading.snapshot.agreement
    workers = reading.snapshot.workers
    return PodStatus(
        ready=verdict.ready,
        reason=verdict.reason,
        message=verdict.message,
        versions=_versions(reading.hellos),
        unmeasured=[
            LibraryStatus(name=one.distribution, version=version, measured=one.measured)
            for backend, version in trust.unmeasured(workers.versions).items()
            for one in [trust.MEASURED[backend]]
        ],
        unsupported=launcher.unsupported if launcher else "",
        patches=_patches(reading.hellos),
        ranks=[
            RankStatus(
                rank=rank,
                state="Connected" if rank in reading.ranks else "Missing",
                desyncs=agreement.desyncs.get(rank, 0),
            )
            for rank in reading.snapshot.expected_ranks
        ],
        desync=agreement.message,
        exhausted=exhausted(reading.snapshot),
        grammars=list(reading.snapshot.grammars),
        logits_processors=_processors(reading),
        grammar_workers=WorkersStatus(ready=workers.ready, restarts=sum(workers.restarts.values())),
        guided_probe=reading.probe,
        last_failure=_last(workers.last_failure, reading.probe_failure),
        drafts=reading.drafts,
        scheduling=next((hello.scheduling for hello in reading.hellos if hello.scheduling), ""),
        speculation=SpeculationStatus(
            method=next((hello.speculation for hello in reading.hellos if hello.speculation), ""),
            num_tokens=reading.engine.drafts,
        ),
    )


def _processors(reading: Reading) -> list[ProcessorStatus]:
    """Return each logits processor; a rank connects once it has made the factories of all."""
    is_loaded = reading.ranks.issuperset(reading.snapshot.expected_ranks)
    return [
        ProcessorStatus(
            name=processor.name,
            state="Loaded" if is_loaded else "Pending",
            failures=reading.processor_failures.get(processor.name, 0),
        )
        for processor in reading.config.logits_processors
    ]


def _last(*failures: Failure | None) -> Failure | None:
    known = [failure for failure in failures if failure is not None]
    return max(known, key=lambda failure: failure.time, default=None)  # RFC 3339 in UTC sorts by time


def _versions(hellos: Iterable[Hello]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for hello in hellos:
        versions |= hello.versions
    return dict(sorted(versions.items()))


def _patches(hellos: Iterable[Hello]) -> list[Patch]:
    """Return each patch once, in its worst state over the processes: one unpatched rank breaks a request."""
    worst: dict[str, Patch] = {}
    for patch in (patch for hello in hellos for patch in hello.patches):
        known = worst.get(patch.name)
        if known is None or _WORST.index(patch.state) > _WORST.index(known.state):
            worst[patch.name] = patch
    return [worst[name] for name in sorted(worst)]

"""The /status page, made of one reading and its verdict."""

from collections.abc import Iterable
from typing import Final

from guided_contract.status import (
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
    snapshot, hellos, connected = reading.snapshot, reading.snapshot.current, reading.snapshot.ranks
    launcher = snapshot.launcher
    workers, agreement = snapshot.workers, snapshot.agreement
    failures = [failure for failure in (workers.last_failure, reading.probe_failure) if failure is not None]
    # A rank connects once it has made the factories of all processors.
    is_complete = connected.issuperset(snapshot.expected_ranks)
    versions = {name: version for hello in hellos for name, version in hello.versions.items()}
    return PodStatus(
        ready=verdict.ready,
        reason=verdict.reason,
        message=verdict.message,
        versions=dict(sorted(versions.items())),
        unmeasured=[
            LibraryStatus(name=one.distribution, version=version, measured=" or ".join(one.measured))
            for backend, version in trust.unmeasured(workers.versions).items()
            for one in [trust.MEASURED[backend]]
        ],
        unsupported=launcher.unsupported if launcher else "",
        patches=_patches(hellos),
        ranks=[
            RankStatus(
                rank=rank,
                state="Connected" if rank in connected else "Missing",
                desyncs=agreement.desyncs.get(rank, 0),
                restarts=reading.matchers_restarts.get(rank, 0),
            )
            for rank in snapshot.expected_ranks
        ],
        desync=agreement.message,
        exhausted=exhausted(snapshot),
        grammars=list(snapshot.grammars),
        logits_processors=[
            ProcessorStatus(
                name=processor.name,
                state="Loaded" if is_complete else "Pending",
                failures=reading.processor_failures.get(processor.name, 0),
            )
            for processor in reading.config.logits_processors
        ],
        grammar_workers=WorkersStatus(ready=workers.ready, restarts=sum(workers.restarts.values())),
        # RFC 3339 in UTC sorts by time.
        last_failure=max(failures, key=lambda failure: failure.time, default=None),
        drafts=reading.drafts,
        scheduling=next((hello.scheduling for hello in hellos if hello.scheduling), ""),
        speculation=SpeculationStatus(
            method=next((hello.speculation for hello in hellos if hello.speculation), ""),
            num_tokens=reading.engine.drafts,
        ),
    )


def _patches(hellos: Iterable[Hello]) -> list[Patch]:
    """Return each patch once, in its worst state over the processes: one unpatched rank breaks a request."""
    worst: dict[str, Patch] = {}
    for patch in (patch for hello in hellos for patch in hello.patches):
        known = worst.setdefault(patch.name, patch)
        if _WORST.index(patch.state) > _WORST.index(known.state):
            worst[patch.name] = patch
    return [worst[name] for name in sorted(worst)]

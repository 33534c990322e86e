"""What the grammar service knows about itself and its peers at one moment, for health and status."""

import dataclasses
from collections.abc import Mapping

from guided_contract.status import GrammarStatus, QuarantinedGrammar
from guided_contract.wire import Hello
from guided_sidecar.consensus import AgreementState
from guided_sidecar.grammar.disk import DiskCounts
from guided_sidecar.grammar.workers import WorkersState


@dataclasses.dataclass(frozen=True, slots=True)
class CacheState:
    """Prepared grammars, and what became of all that was asked for since the service started.

    Parameters
    ----------
    entries, size_bytes
        Grammars kept in memory and on the run folder's tmpfs.
    leased_bytes
        Of these, what nothing may evict.
    evictions
        Grammars given up for want of room since the service started.
    leases
        Guided requests that hold a grammar on the ranks.
    answers
        Prepares by how their grammar was found: "hit", "disk", "joined" (another's compile), "miss",
        "refused" (known to be bad), "" (ended before it was looked for).
    compiles
        Compiles that ended, by backend and error code, as in flights.Flights.
    disk
        What the disk kept and gave.
    """

    entries: int = 0
    size_bytes: int = 0
    leased_bytes: int = 0
    evictions: int = 0
    leases: int = 0
    answers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compiles: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    disk: DiskCounts = dataclasses.field(default_factory=DiskCounts)


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """One reading of the service; made anew at each call, never changed.

    Parameters
    ----------
    hellos
        One per open connection, oldest first; a closed connection's hello is gone at once.
    expected_ranks
        Sampling ranks that must connect, of all engine cores; on another node than the first, those on it.
    unlinked
        Of these, on another node than the first, those without a connection to the first.
    workers
        The grammar workers; none is ready until the template is warm.
    cache
        The grammars.
    quarantined, quarantine
        How many grammars are refused unseen for a while, because compiling them killed workers; some of them.
    grammars
        The named grammars, by name.
    awaited_grammars
        Those without which the pod does not become ready: there from the start, and not yet in service.
    exhausted
        The restart budget is spent; new grammars are refused with 503 until it recovers.
    agreement
        Whether the ranks agree.
    """

    hellos: tuple[Hello, ...] = ()
    expected_ranks: range = range(1)
    unlinked: frozenset[int] = frozenset()
    workers: WorkersState = dataclasses.field(default_factory=WorkersState)
    cache: CacheState = dataclasses.field(default_factory=CacheState)
    quarantined: int = 0
    quarantine: tuple[QuarantinedGrammar, ...] = ()
    grammars: tuple[GrammarStatus, ...] = ()
    awaited_grammars: frozenset[str] = frozenset()
    exhausted: bool = False
    agreement: AgreementState = dataclasses.field(default_factory=AgreementState)

    @property
    def ranks(self) -> frozenset[int]:
        """Global ranks of the sampling workers that are connected."""
        return frozenset(
            hello.rank
            for hello in self.hellos
            if hello.role == "rank" and hello.samples and hello.rank is not None
        )

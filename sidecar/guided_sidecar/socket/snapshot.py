"""What the grammar service knows about itself and its peers at one moment, for health and status."""

import dataclasses

from guided_contract.status import GrammarStatus
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.grammar.prepare.cache import CacheState
from guided_sidecar.ranks.agreement import AgreementState


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

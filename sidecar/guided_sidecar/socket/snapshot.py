"""What the grammar service knows about itself and its peers at one moment, for health and status."""

import dataclasses

from guided_contract.status import GrammarStatus
from guided_contract.wire import Hello
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.grammar.prepare.known import KnownState
from guided_sidecar.ranks.agreement import AgreementState


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """One reading of the service; made anew at each call, never changed."""

    hellos: tuple[Hello, ...] = ()  # of open connections, oldest first
    expected_ranks: range = range(1)  # that sample: of all engine cores, or of a node that is not the first
    unlinked: frozenset[int] = frozenset()  # of such a node, those without a connection to the first
    workers: WorkersState = dataclasses.field(default_factory=WorkersState)
    cache: KnownState = dataclasses.field(default_factory=KnownState)
    grammars: tuple[GrammarStatus, ...] = ()  # that have a name
    awaited_grammars: frozenset[str] = frozenset()  # which the pod waits for to become ready
    exhausted: bool = False  # the restart budget is spent: new grammars are refused
    agreement: AgreementState = dataclasses.field(default_factory=AgreementState)

    @property
    def ranks(self) -> frozenset[int]:
        """Global ranks of the sampling workers that are connected."""
        return frozenset(
            hello.rank
            for hello in self.hellos
            if hello.role == "rank" and hello.samples and hello.rank is not None
        )

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
    exhausted: bool = False  # too many workers died in a row: new grammars are refused
    agreement: AgreementState = dataclasses.field(default_factory=AgreementState)

    @property
    def launcher(self) -> Hello | None:
        """The newest launcher's hello."""
        return next((hello for hello in reversed(self.hellos) if hello.role == "launcher"), None)

    @property
    def boot(self) -> str:
        """The running engine start's name; "" while no launcher is connected."""
        return self.launcher.boot if self.launcher else ""

    @property
    def current(self) -> tuple[Hello, ...]:
        """The hellos of this engine start; a dying predecessor's connections do not count.

        Those of other nodes have engine starts of their own, which their own sidecars follow.
        """
        boot = self.boot
        return tuple(hello for hello in self.hellos if hello.node or hello.boot == boot)

    @property
    def ranks(self) -> frozenset[int]:
        """Global ranks of its sampling workers that are connected."""
        return frozenset(
            hello.rank
            for hello in self.current
            if hello.role == "rank" and hello.samples and hello.rank is not None
        )

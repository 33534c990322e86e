"""What the grammar service knows about itself and its peers at one moment, for health and status."""

import dataclasses

from guided_contract.status import Failure
from guided_contract.wire import Hello
from guided_sidecar.consensus import AgreementState


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """One reading of the service; made anew at each call, never changed.

    Parameters
    ----------
    hellos
        One per open connection, oldest first; a closed connection's hello is gone at once.
    expected_ranks
        Sampling ranks that must connect, of all engine cores.
    workers_ready
        Grammar workers that could take a compile now or are compiling; 0 until the template is warm.
    worker_restarts
        Grammar workers lost to a crash, a deadline, a limit or a cancelled client, since the service started.
    leases
        Guided requests that hold a grammar on the ranks.
    exhausted
        The restart budget is spent; new grammars are refused with 503 until it recovers.
    last_failure
        The last grammar worker's failure, if there was one.
    agreement
        Whether the ranks agree.
    """

    hellos: tuple[Hello, ...] = ()
    expected_ranks: int = 1
    workers_ready: int = 0
    worker_restarts: int = 0
    leases: int = 0
    exhausted: bool = False
    last_failure: Failure | None = None
    agreement: AgreementState = dataclasses.field(default_factory=AgreementState)

    @property
    def ranks(self) -> frozenset[int]:
        """Global ranks of the sampling workers that are connected."""
        return frozenset(
            hello.rank
            for hello in self.hellos
            if hello.role == "rank" and hello.samples and hello.rank is not None
        )

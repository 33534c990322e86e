"""What is prepared at one moment, and what became of all that was asked for."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

# A walk came to the end of a text, which was judged; none did in its time; or the grammar was refused.
ProofResult = Literal["finished", "unfinished", "refused"]


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
        Prepares by how their grammar was found: "hit", "joined" (another's compile), "miss",
        "refused" (known to be bad), "" (ended before it was looked for).
    proofs
        Proofs of compiled grammars by ProofResult.
    unenforced
        Requests that were served although something that their grammars ask for is not enforced.
    """

    entries: int = 0
    size_bytes: int = 0
    leased_bytes: int = 0
    evictions: int = 0
    leases: int = 0
    answers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    proofs: Mapping[ProofResult, int] = dataclasses.field(default_factory=dict)
    unenforced: int = 0

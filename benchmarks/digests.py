"""What the digests cost a rank: microseconds per step, by how often they are made.

`python benchmarks/digests.py` prints a table. Sequences gain tokens as with k=3 and 2.5 accepted a step,
masks are as wide as 131,072 tokens need, and the records go to a real datagram socket that a thread reads.
"""

import itertools
import random
import socket
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from guided_contract.config import ConsensusConfig
from guided_engine.ranks.agreement import Agreement, Progress
from guided_engine.telemetry import Telemetry

WORDS: Final = 131_072 // 32
STEPS: Final = 300
DRAFTS: Final = 3
MODES: Final = (
    ConsensusConfig(mode="Every"),
    ConsensusConfig(sample_every=8),
    ConsensusConfig(sample_every=32),
    ConsensusConfig(sample_every=128),
)


@dataclass(slots=True)
class Sequence:
    """As much of a sequence as digests need."""

    request_id: str
    accepted: list[int] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)


def steps_us(config: ConsensusConfig, batch: int, socket_path: Path) -> list[float]:
    """Return what each step took after the sequences' first digests."""
    telemetry = Telemetry(socket_path)
    agreement = Agreement(0, config, telemetry.send)
    rows = 1 + DRAFTS
    bitmask = np.random.default_rng(0).integers(-(2**31), 2**31, (batch * rows, WORDS)).astype(np.int32)
    sequences = [Sequence(f"cmpl-{number:032x}-0") for number in range(batch)]
    accepted = random.Random(0)
    taken = []
    for _ in range(STEPS):
        masked = [(one, bitmask[i * rows]) for i, one in enumerate(sequences)]
        begun = time.perf_counter()
        agreement.compare(masked)
        taken.append(1e6 * (time.perf_counter() - begun))
        for one in sequences:
            one.accepted.extend([7] * accepted.choice((1, 2, 3, 4)))
    telemetry.close()
    return taken[1:]


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        reader.bind(str(path))
        threading.Thread(
            target=lambda: [reader.recv(1 << 16) for _ in itertools.count()], daemon=True
        ).start()
        print("| digests | B | mean us a step | p95 us |")
        print("|---|---|---|---|")
        for batch in (16, 64, 256):
            for config in MODES:
                taken = steps_us(config, batch, path)
                name = "every token" if config.mode == "Every" else f"every {config.sample_every} tokens"
                p95 = statistics.quantiles(taken, n=20)[-1]
                print(f"| {name} | {batch} | {statistics.mean(taken):.0f} | {p95:.0f} |")


if __name__ == "__main__":
    main()

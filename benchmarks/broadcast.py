"""What it costs to match on one rank and broadcast the masks, against matching on every rank.

`python benchmarks/broadcast.py` (see --help) prints a table: per step, the time from knowing the
last step's tokens until the last rank holds its masks, CPU time of all ranks together for it, and the bytes
that crossed a process. Ranks are processes with the product's own guide under fill_cost.py's load: as many
schemas as sequences, k=3. gloo is what vLLM's CPU groups use; shared memory is one copy in and a semaphore.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
import vocabulary as tokenizers
from fill_cost import Demand, Rank, Words

from guided_grammar.masks import words

DRAFTS: Final = 3
WORDS: Final = words(tokenizers.SIZE)
WARM_UP: Final = 20
ARMS: Final = ("every rank", "shared memory", "gloo")


@dataclass(frozen=True, slots=True)
class Setup:
    """What every process of a run knows."""

    ranks: int
    batch: int
    backend: Any
    steps: int
    meet: str  # file where gloo's processes meet
    shared: str  # name of the shared memory

    @property
    def rows(self) -> int:
        """Mask rows of a step, at most."""
        return self.batch * (1 + DRAFTS)


class Times:
    """Measures the last step of one rank: when it began and ended, and its CPU time."""

    def __init__(self) -> None:
        self.begun = self.ended = self.cpu = 0.0

    def measure(self, call: Callable[[], Any]) -> Any:
        """Call it."""
        self.begun, cpu = time.monotonic(), time.process_time()
        result = call()
        self.ended, self.cpu = time.monotonic(), time.process_time() - cpu
        return result


def run(number: int, setup: Setup, sync: tuple[Any, Any], results: Any) -> None:
    """Be one rank: each arm in turn, every step begun by all together."""
    barrier, arrived = sync
    torch.set_num_threads(1)
    minutes = timedelta(minutes=5)
    dist.init_process_group(
        "gloo", init_method=f"file://{setup.meet}", rank=number, world_size=setup.ranks, timeout=minutes
    )
    rank = Rank(Words(), Demand(setup.backend, setup.batch, DRAFTS, 0.75, setup.batch, 1))
    memory = SharedMemory(setup.shared)
    shared = np.ndarray((setup.rows, WORDS), np.int32, memory.buf)
    tensor = torch.empty((setup.rows, WORDS), dtype=torch.int32)
    times, fill = Times(), rank.guide.masks

    def to_shared(masks: Any) -> None:
        shared[: len(masks.bitmask)] = masks.bitmask
        for _ in range(setup.ranks - 1):
            arrived.release()

    def by_gloo(masks: Any) -> None:
        tensor.numpy()[: len(masks.bitmask)] = masks.bitmask
        dist.broadcast(tensor, src=0)

    give: dict[str, Callable[[Any], None]] = {
        ARMS[0]: lambda _masks: None,
        ARMS[1]: to_shared,
        ARMS[2]: by_gloo,
    }
    take = {ARMS[1]: arrived.acquire, ARMS[2]: lambda: dist.broadcast(tensor, src=0)}
    for arm in ARMS:

        def filled(arm: str = arm) -> Any:
            masks = fill()
            give[arm](masks)
            return masks

        rank.guide.masks = lambda filled=filled: times.measure(filled)  # type: ignore[method-assign, misc]
        for step in range(WARM_UP + setup.steps):
            barrier.wait()
            if number == 0 or arm == ARMS[0]:
                rank.step()
            else:
                times.measure(take[arm])
            if step >= WARM_UP:
                results.put((arm, step, number, times.begun, times.ended, times.cpu))
    barrier.wait()
    # The view of the shared memory goes with the process.
    dist.destroy_process_group()


def measure(ranks: int, batch: int, backend: str, steps: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield each arm with its median and 95th percentile in us, and CPU ms per step of all ranks."""
    context = get_context("spawn")
    memory = SharedMemory(create=True, size=batch * (1 + DRAFTS) * WORDS * 4)
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(ranks, batch, backend, steps, str(Path(folder, "meet")), memory.name)
        sync, results = (context.Barrier(ranks), context.Semaphore(0)), context.Queue()
        processes = [context.Process(target=run, args=(r, setup, sync, results)) for r in range(ranks)]
        for process in processes:
            process.start()
        taken = [results.get(timeout=300) for _ in range(len(ARMS) * steps * ranks)]
        for process in processes:
            process.join(60)
    memory.close()
    memory.unlink()
    for arm in ARMS:
        spans, used = [], []
        for step in range(WARM_UP, WARM_UP + steps):
            of_step = [one[2:] for one in taken if one[:2] == (arm, step)]
            if arm == ARMS[0]:
                spans.append(max(ended - begun for _, begun, ended, _ in of_step))
            else:
                begun = next(begun for number, begun, _, _ in of_step if number == 0)
                spans.append(max(ended for _, _, ended, _ in of_step) - begun)
            used.append(sum(cpu for *_, cpu in of_step))
        late = statistics.quantiles(spans, n=20)[-1]
        yield arm, 1e6 * statistics.median(spans), 1e6 * late, 1e3 * statistics.mean(used)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--backend", nargs="+", default=["xgrammar", "guidance"])
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    options = parser.parse_args()
    print(f"{options.ranks} ranks, {os.cpu_count()} cores, k={DRAFTS}, {tokenizers.SIZE} tokens")
    print(
        "| backend | B | masks by | last rank has them, median us | p95 us | CPU ms a step | bytes a step |"
    )
    print("|---|---|---|---|---|---|---|")
    for backend in options.backend:
        for batch in options.batch:
            crossing = batch * (1 + DRAFTS) * WORDS * 4 * (options.ranks - 1)
            for arm, median, late, cpu in measure(options.ranks, batch, backend, options.steps):
                figures = f"{median:.0f} | {late:.0f} | {cpu:.2f} | {0 if arm == ARMS[0] else crossing:,}"
                print(f"| {backend} | {batch} | {arm} | {figures} |", flush=True)


if __name__ == "__main__":
    main()

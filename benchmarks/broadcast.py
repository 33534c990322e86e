"""What it costs to match on one rank and broadcast the masks, against matching on every rank.

`python benchmarks/broadcast.py [--ranks 2] [--steps 60]` prints a table: per step, the time until the last
rank holds its masks, CPU time of all ranks together, and the bytes that crossed a process. The ranks are
processes, matchers and fill are the product's own, there are 64 schemas, and every sequence has three drafts
inside a free string. gloo is what vLLM's CPU groups use; the shared-memory arm is the best that can be had:
filled in place, read in place, waited for by spinning.
"""

import argparse
import json
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

import llguidance
import numpy as np
import torch
import torch.distributed as dist
import vocabulary as wide
import xgrammar

from guided_contract.config import PodConfig
from guided_engine.ranks.bitmasks import words
from guided_engine.ranks.matchers import Bitmask, GuidanceMatcher, XGrammarMatcher
from guided_engine.ranks.walks import GuidanceFiller, Walk, XGrammarFiller, fill_walks
from guided_sidecar.grammar import backends, vocabulary

DRAFTS: Final = 3
ROW_BYTES: Final = 4 * words(wide.SIZE)
SCHEMAS: Final = 64
WARM_UP: Final = 5
ARMS: Final = ("every rank", "shared memory", "gloo")
TEXT: Final = '{"%s": "the value of this field is a rather common'
DRAFTED: Final = " line of text"


@dataclass(frozen=True, slots=True)
class Setup:
    """What every process of a run knows."""

    ranks: int
    batch: int
    backend: str
    steps: int
    meet: str  # file where gloo's processes meet
    shared: str  # shared memory: a counter, then the masks


class Ranks:
    """One rank's sequences, each in the middle of a free string."""

    def __init__(self, setup: Setup) -> None:
        folder = str(wide.folder())
        pod = PodConfig(name="b", model=folder, tokenizer=folder, served_name="b", run_dir="/nowhere")
        self.words = vocabulary.load(pod)
        self._encode = _encoder(folder)
        self._xgrammar = backends.XGrammarBackend(self.words, 1)
        self._guidance = backends.GuidanceBackend(self.words)
        self._loaded: dict[str, Any] = {}
        self._fill = XGrammarFiller().fill if setup.backend == "xgrammar" else GuidanceFiller().fill
        self._matchers = [self._matcher(setup.backend, number) for number in range(setup.batch)]
        self._drafts = self._encode(DRAFTED)[:DRAFTS]

    def fill(self, bitmask: Bitmask) -> None:
        """Write a step's masks: [batch * (1 + DRAFTS), words] int32."""
        rows = 1 + DRAFTS
        walks = [Walk(matcher, i * rows, rows, self._drafts) for i, matcher in enumerate(self._matchers)]
        fill_walks(walks, bitmask, self._fill)
        assert all(walk.valid == DRAFTS for walk in walks)

    def _matcher(self, backend: str, number: int) -> Any:
        name = f"field{number % SCHEMAS}"
        if name not in self._loaded:
            schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
            self._loaded[name] = self._load(backend, json.dumps(schema))
        loaded = self._loaded[name]
        is_xgrammar = backend == "xgrammar"
        made: Any = XGrammarMatcher(loaded, [wide.EOS]) if is_xgrammar else GuidanceMatcher(loaded, wide.EOS)
        assert made.accept(self._encode(TEXT % name))
        return made

    def _load(self, backend: str, schema: str) -> Any:
        if backend == "xgrammar":
            text = self._xgrammar.compile("json", schema, any_whitespace=True).load_text()
            return xgrammar.CompiledGrammar.deserialize_json(text, self.words.xgrammar_info)
        text = self._guidance.compile("json", schema, any_whitespace=True).load_text()
        return llguidance.LLMatcher(self.words.guidance_tokenizer, text)


def run(rank: int, setup: Setup, barrier: Any, results: Any) -> None:
    """Be one rank: each arm in turn, every step begun by all together."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{setup.meet}",
        rank=rank,
        world_size=setup.ranks,
        timeout=timedelta(seconds=120),
    )
    ranks = Ranks(setup)
    rows = setup.batch * (1 + DRAFTS)
    memory = SharedMemory(setup.shared)
    counter = np.ndarray((1,), np.int64, memory.buf)
    masks = np.ndarray((rows, words(wide.SIZE)), np.int32, memory.buf, offset=64)
    received = torch.empty((rows, words(wide.SIZE)), dtype=torch.int32)
    private = received.numpy()

    def every_rank(_step: int) -> None:
        ranks.fill(private)

    def shared(step: int) -> None:
        if rank == 0:
            ranks.fill(masks)
            counter[0] = step
        while counter[0] != step:
            os.sched_yield()

    def gloo(_step: int) -> None:
        if rank == 0:
            ranks.fill(private)
        dist.broadcast(received, src=0)

    calls: dict[str, Callable[[int], None]] = dict(zip(ARMS, (every_rank, shared, gloo), strict=True))
    for number, arm in enumerate(ARMS):
        for step in range(setup.steps + WARM_UP):
            barrier.wait()
            cpu, begun = time.process_time(), time.monotonic()
            calls[arm](1000 * number + step + 1)
            taken = (begun, time.monotonic(), time.process_time() - cpu)
            if step >= WARM_UP:
                results.put((arm, step, *taken))
    barrier.wait()
    counter = masks = None  # type: ignore[assignment]  # the memory cannot be closed while they view it
    memory.close()
    dist.destroy_process_group()


def measure(ranks: int, batch: int, backend: str, steps: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield each arm with its median and 95th percentile in us, and CPU ms per step of all ranks."""
    context = get_context("spawn")
    size = 64 + batch * (1 + DRAFTS) * ROW_BYTES
    memory = SharedMemory(create=True, size=size)
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(ranks, batch, backend, steps, str(Path(folder, "meet")), memory.name)
        barrier, results = context.Barrier(ranks), context.Queue()
        processes = [context.Process(target=run, args=(r, setup, barrier, results)) for r in range(ranks)]
        for process in processes:
            process.start()
        taken = [results.get(timeout=300) for _ in range(len(ARMS) * steps * ranks)]
        for process in processes:
            process.join(60)
    memory.close()
    memory.unlink()
    for arm in ARMS:
        by_step: dict[int, list[tuple[float, float, float]]] = {}
        for name, step, *figures in taken:
            if name == arm:
                by_step.setdefault(step, []).append((figures[0], figures[1], figures[2]))
        spans = [
            1e6 * (max(end for _, end, _ in one) - min(begin for begin, _, _ in one))
            for one in by_step.values()
        ]
        cpu = statistics.mean(sum(used for _, _, used in one) for one in by_step.values())
        yield arm, statistics.median(spans), statistics.quantiles(spans, n=20)[-1], 1e3 * cpu


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print(f"{options.ranks} ranks, {os.cpu_count()} cores, k={DRAFTS}, {wide.SIZE} tokens")
    print(
        "| backend | B | masks by | last rank has them, median us | p95 us | CPU ms a step | bytes a step |"
    )
    print("|---|---|---|---|---|---|---|")
    for backend in ("xgrammar", "guidance"):
        for batch in (64, 256):
            crossing = batch * (1 + DRAFTS) * ROW_BYTES * (options.ranks - 1)
            for arm, median, late, cpu in measure(options.ranks, batch, backend, options.steps):
                sent = 0 if arm == ARMS[0] else crossing
                print(
                    f"| {backend} | {batch} | {arm} | {median:.0f} | {late:.0f} | {cpu:.2f} | {sent:,} |",
                    flush=True,
                )


def _encoder(folder: str) -> Callable[[str], list[int]]:
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


if __name__ == "__main__":
    main()

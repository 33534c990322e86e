"""What a rank's guided decoding costs per step, without an engine: each sequence has a schema of its own.

`python benchmarks/fill_cost.py --backend guidance --batch 64 256` prints milliseconds per step: what a rank
does between knowing the last step's tokens and handing over the mask. It accepts, walks drafts, and fills.
"""

import argparse
import importlib.metadata
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import schemas
import vocabulary as tokenizers
from devtools import cache
from transformers import AutoTokenizer

from guided_contract.config import PodConfig
from guided_contract.wire import Backend, Load, Ticket
from guided_engine.processors.registry import Registry
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.guided_rank import RankGuide, RankTraits
from guided_engine.ranks.loaded_grammars import Prototypes
from guided_engine.ranks.step import Arrival, Plan
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.compile import vocabulary


@dataclass(slots=True)
class Stream:
    """One sequence after another of the same schema, each writing a document of its own."""

    number: int
    tokens: list[int] = field(default_factory=list)
    done: int = 0
    generation: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def request_id(self) -> str:
        """Return the present sequence's name."""
        return f"{self.number}/{self.generation}"


class Words:
    """The tokenizer as the ranks ask for it."""

    def __init__(self) -> None:
        model = str(tokenizers.folder())
        pod = PodConfig(name="b", model=model, tokenizer=model, served_name="b", run_dir="/nowhere")
        self.vocabulary = vocabulary.load(pod)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a document and its end."""
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return [*tokens, tokenizers.EOS]

    def grammars(self, backend: Backend, count: int) -> list[str]:
        """Return what a rank loads the first grammars from, compiled once and kept."""
        texts = [json.dumps(schemas.schema(number)) for number in range(count)]
        versions = [f"{name}=={importlib.metadata.version(name)}" for name in ("xgrammar", "llguidance")]
        inputs = [backend, tokenizers.folder().name, *versions, *texts]
        folder = cache.built("fill-cost", inputs, lambda target: self._compile(backend, texts, target))
        return [(folder / str(number)).read_text() for number in range(count)]

    def _compile(self, backend: Backend, texts: list[str], target: Path) -> None:
        compiler = Backends(self.vocabulary, Threads(compile=2))[backend]
        for number, text in enumerate(texts):
            loadable = compiler.compile("json", text, any_whitespace=True).artifact()
            (target / str(number)).write_text(loadable)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a rank has to do: `hit` is the share of drafts that the document agrees with."""

    backend: Backend
    batch: int
    drafts: int
    hit: float
    schemas: int
    threads: int


class Rank:
    """One rank's guide under load."""

    def __init__(self, words: Words, load: Demand) -> None:
        self._words, self._load = words, load
        self._rng = random.Random(0)
        self._folder = Path(tempfile.mkdtemp(prefix="fill-cost-"))
        backends = Backends(words.vocabulary, Threads(fill=load.threads))
        self.buffer = BitmaskBuffer(load.batch * (1 + load.drafts), tokenizers.SIZE, backends)
        prototypes = Prototypes(self._folder, backends)
        self.guide = RankGuide(
            RankTraits(0, tokenizers.SIZE, is_async=True),
            prototypes,
            Registry([]),
            self.buffer,
            lambda _record: None,
        )
        self._schemas = [schemas.schema(number) for number in range(load.schemas)]
        for number, grammar in enumerate(words.grammars(load.backend, load.schemas)):
            loaded = prototypes.load(self._message(str(number), grammar))
            if loaded.error:
                raise RuntimeError(loaded.error)
        self._streams = [Stream(number) for number in range(load.batch)]
        self._finished: list[str] = []
        for stream in self._streams:
            self._start(stream)

    def step(self) -> float:
        """Take one step; return the seconds that the rank's part of it took."""
        streams = self._streams
        self.guide.begin(
            Plan(
                finished=self._finished,
                arrivals=[self._arrival(stream) for stream in streams if stream.done == 0],
                resumed={},
                computed=[(stream.request_id, 1 + stream.done) for stream in streams],
                scheduled={stream.request_id: 1 + len(stream.drafts) for stream in streams},
                drafts={s.request_id: [-1] * len(s.drafts) for s in streams if s.drafts},
            )
        )
        self._finished = []
        before = time.perf_counter()
        self.guide.learn_drafts([s.request_id for s in streams], [s.drafts for s in streams])
        masks = self.guide.masks()
        seconds = time.perf_counter() - before
        sampled = [(stream.request_id, self._sample(stream)) for stream in streams]
        self.guide.sampled(lambda: sampled)
        if masks is None or self.guide.ends():
            raise RuntimeError("a document does not meet its schema")
        for stream in streams:
            if stream.done == len(stream.tokens):
                self._finished.append(stream.request_id)
                self._start(stream)
            else:
                stream.drafts = self._draft(stream)
        return seconds

    def _message(self, key: str, text: str) -> Load:
        if self._load.backend == "guidance":
            return Load(key=key, backend="guidance", spec=text)
        sha256 = artifacts.write(self._folder, key, text.encode())
        return Load(key=key, backend="xgrammar", artifact=key, sha256=sha256)

    def _start(self, stream: Stream) -> None:
        stream.generation += 1
        schema = self._schemas[stream.number % len(self._schemas)]
        stream.tokens = self._words.encode(schemas.document(schema, stream.request_id))
        stream.done = 0
        stream.drafts = []

    def _arrival(self, stream: Stream) -> Arrival:
        ticket = Ticket(key=str(stream.number % len(self._schemas)), backend=self._load.backend)
        return Arrival(
            request_id=stream.request_id,
            prompt_tokens=[5],
            prompt_length=1,
            known_tokens=[5],
            computed=0,
            is_guided=True,
            ticket=ticket,
            stop_tokens=(tokenizers.EOS,),
            arguments={},
        )

    def _sample(self, stream: Stream) -> list[int]:
        """Return the drafts that the document agrees with, and one token more."""
        ahead = stream.tokens[stream.done :]
        accepted = 0
        while accepted < min(len(stream.drafts), len(ahead) - 1) and (
            stream.drafts[accepted] == ahead[accepted]
        ):
            accepted += 1
        stream.done += accepted + 1
        return ahead[: accepted + 1]

    def _draft(self, stream: Stream) -> list[int]:
        ahead = stream.tokens[stream.done : stream.done + self._load.drafts]
        ahead += [tokenizers.EOS] * (self._load.drafts - len(ahead))
        rng = self._rng
        return [token if rng.random() < self._load.hit else rng.choice(stream.tokens) for token in ahead]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="+", default=["guidance", "xgrammar"])
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--hit", type=float, default=0.75, help="share of drafts that the document has")
    parser.add_argument("--schemas", type=int, default=0, help="different schemas; as many as sequences")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=150)
    asked = parser.parse_args()
    words = Words()
    for backend in asked.backend:
        for batch in asked.batch:
            for threads in asked.threads:
                kind = cast("Backend", backend)
                load = Demand(kind, batch, asked.drafts, asked.hit, asked.schemas or batch, threads)
                print(_measured(Rank(words, load), load, asked.steps), flush=True)


def _measured(rank: Rank, load: Demand, steps: int) -> str:
    for _ in range(20):
        rank.step()
    counts = rank.buffer.counts
    rows, reused = counts.rows, counts.reused
    times = sorted(1e3 * rank.step() for _ in range(steps))
    rows, reused = counts.rows - rows, counts.reused - reused
    mean = statistics.mean(times)
    return (
        f"{load.backend:9} B={load.batch:<4} k={load.drafts} schemas={load.schemas:<4} threads={load.threads}"
        f"  mean {mean:6.2f} ms  p50 {times[steps // 2]:6.2f}  p95 {times[int(0.95 * steps)]:6.2f}"
        f"  {1e3 * mean * steps / rows:6.2f} us/row  reused {reused / rows:4.0%}"
    )


if __name__ == "__main__":
    main()

"""`make bench-processors`: what logits processors cost a step of a rank's host (CELLS=, REPS=).

A rank without an engine, taken through steps: B sequences of 4,096 tokens of one real text each, which go on
in it, with all drafts right. Beside each other without processors, with some that no request chose (both
guided, by a grammar that allows all), and with DRY and NoRepeatNgram. The kernel that applies the edits is
left out: tests/gpu has it. Last, what a step takes in which the process of the matchers has died.
"""

import gc
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import commit
import torch
import vocabulary
from judged import Bar, table
from llguidance import LLMatcher
from rankbench.statistics import paired_ratio
from transformers import AutoTokenizer

if not torch.cuda.is_available():
    import vllm.v1.worker.cpu.shm  # noqa: F401 - a CPU's memory counts as pinned

from guided_contract.config import LogitsProcessorConfig
from guided_contract.wire import Load, Ticket
from guided_engine.compat.edits_v2 import EditsV2
from guided_engine.matchers.beside import MatchersBeside
from guided_engine.matchers.bitmasks import MaskFiller
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.matchers.matching import Matching, RankTraits
from guided_engine.matchers.memory import SharedMemory
from guided_engine.matchers.template import Made
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry, Running
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.step import Arrival, Plan, SampledTokens
from guided_grammar.registry import Backends, Tokenizer

_REPETITIONS: Final = 30
_WARM: Final = 3
_HISTORY: Final = 4096  # tokens, all of the prompt's
_DRY_MS: Final = 4.0
_TAKEN_OVER: Final = 64  # sequences
_STEPS: Final = 1000
_DRY_CELL: Final = "k3-b64"
_PROCESSORS: Final = {
    "DRY": LogitsProcessorConfig(name="DRY", factory="guided_engine.processors.dry:Dry"),
    "NoRepeatNgram": LogitsProcessorConfig(
        name="NoRepeatNgram",
        factory="guided_engine.processors.no_repeat_ngram:NoRepeatNgram",
        params={"include_prompt": True},
    ),
}


class Cell(NamedTuple):
    """How many sequences there are, and the drafts of each."""

    batch: int
    drafts: int

    @property
    def name(self) -> str:
        """Return it as CELLS has it."""
        return f"k{self.drafts}-b{self.batch}"


class Mode(NamedTuple):
    """What a model has; where no request has a processor, all are guided."""

    name: str
    processors: tuple[LogitsProcessorConfig, ...] = ()
    is_guided: bool = False


class Spent(NamedTuple):
    """Microseconds that something took, and this thread's CPU."""

    wall: float
    cpu: float


_CELLS: Final = [Cell(batch, drafts) for drafts in (0, 3) for batch in (1, 64, 256)]
_NONE: Final = Mode("no processors", is_guided=True)
_UNUSED: Final = Mode("processors, none chosen", tuple(_PROCESSORS.values()), is_guided=True)
_MODES: Final = (_NONE, _UNUSED, *(Mode(name, (one,)) for name, one in _PROCESSORS.items()))
Host = Mapping[str, Mapping[str, Sequence[Spent]]]  # mode -> part of a step -> repetitions


@dataclass(frozen=True)
class Text:
    """What all ranks of a run share: a text of the standard library, as this vocabulary has it."""

    tokens: list[int]
    context: Context
    vocabulary: Tokenizer

    @classmethod
    def read(cls) -> "Text":
        """Return it."""
        tokenizer = AutoTokenizer.from_pretrained(vocabulary.folder())
        words = Tokenizer(tokenizer, vocabulary.SIZE)
        context = Context(
            vocab_size=vocabulary.SIZE,
            token_bytes=Backends(words)["guidance"].tokens(),
            stop_tokens=frozenset({vocabulary.EOS}),
        )
        text = "\n".join(topics[name] for name in sorted(topics))
        return cls(tokenizer(text, add_special_tokens=False)["input_ids"], context, words)


class _Noting(Registry):
    """Notes what it makes, so that processors can be asked beside the rank."""

    made: Mapping[str, list[Running]] = {}

    def create(self, arguments: Any, info: Any, **options: Any) -> Iterator[Running]:
        made = list(super().create(arguments, info, **options))
        self.made = {**self.made, info.request_id: made}
        return iter(made)


class Rank:
    """One mode's sequences in one cell."""

    def __init__(self, text: Text, mode: Mode, cell: Cell) -> None:
        self._cell, self._tokens = cell, text.tokens
        self._registry = _Noting(mode.processors, text.context)
        traits = RankTraits(0, vocabulary.SIZE, is_async=True)
        matchers = _matchers(text, traits, cell.batch * (1 + cell.drafts))
        self._guide = RankGuide(traits, matchers, self._registry, lambda _: None)
        self._matchers, self.close = matchers, self._guide.close
        self._names = [f"r{number}" for number in range(cell.batch)]
        self._bridge = _bridge(self._guide, self._names, cell) if mode.processors else None
        spread = (len(self._tokens) - 2 * _HISTORY) // cell.batch
        self._at = {name: _HISTORY + number * spread for number, name in enumerate(self._names)}
        arrivals = [
            Arrival(
                request_id=name,
                prompt_tokens=self._tokens[at - _HISTORY : at],
                prompt_length=_HISTORY,
                known_tokens=None,
                computed=0,
                is_guided=mode.is_guided,
                ticket=Ticket(key="any", backend="guidance"),
                stop_tokens=[vocabulary.EOS],
                arguments={"logits_processors": []} if mode.is_guided and mode.processors else {},
            )
            for name, at in self._at.items()
        ]
        self._computed = _HISTORY
        self._guide.begin(Plan({}, arrivals, {}, (), dict.fromkeys(self._names, _HISTORY), {}))
        self._edits: Any = self._guide.edits()
        self._sample(1)

    def step(self) -> dict[str, Spent]:
        """Take a step in which all drafts are right; return what its parts took."""
        guide, cell, bridge = self._guide, self._cell, self._bridge
        count = 1 + cell.drafts
        computed = [(name, self._computed) for name in self._names]
        drafts = {name: self._tokens[at : at + cell.drafts] for name, at in self._at.items() if cell.drafts}
        plan = Plan({}, (), {}, computed, dict.fromkeys(self._names, count), drafts)
        took = {"begin": _spent(lambda: guide.begin(plan)), "accept": _spent(guide.settle)}
        took["ask"] = _spent(guide.ask)
        took["prepare"] = _spent(lambda: self._prepare(drafts))
        took["edits"] = _spent(lambda: setattr(self, "_edits", guide.edits()))
        took["masks"] = _spent(guide.masks)
        if bridge is not None:
            took["stage"] = _spent(lambda: bridge.stage(self._edits, drafts))
            bridge.taken()
        took["sampled"] = _spent(lambda: self._sample(count))
        self._computed += count
        if ends := guide.ends():
            raise RuntimeError(f"sequences failed: {ends[:3]}")
        return took

    def kill(self) -> None:
        """Kill the process of its matchers."""
        os.kill(self._matchers.pid, signal.SIGKILL)

    def _prepare(self, drafts: Mapping[str, list[int]]) -> None:
        """Ask the processors alone, which is a part of `edits`."""
        for name, running in self._registry.made.items():
            for _, _, processor in running:
                processor.prepare(drafts.get(name, ()))

    def _sample(self, count: int) -> None:
        sampled = [(name, self._tokens[at : at + count]) for name, at in self._at.items()]
        self._at = {name: at + count for name, at in self._at.items()}
        self._guide.sampled(_Sampled(sampled))


class _Sampled:
    """What a step sampled, on the host."""

    def __init__(self, sampled: list[tuple[str, list[int]]]) -> None:
        self._sampled = sampled

    def is_here(self) -> bool:
        return False  # to be read where a part of the step is timed

    def read(self) -> SampledTokens:
        names, tokens = zip(*self._sampled, strict=True)
        return SampledTokens.of(list(names), list(tokens))


def _matchers(text: Text, traits: RankTraits, rows: int) -> MatchersBeside:
    """Return a rank's matchers, which have a grammar that allows all."""
    memory = SharedMemory(rows, vocabulary.SIZE)

    def start() -> tuple[Matching, LoadedGrammars]:
        backends = Backends(text.vocabulary)
        loaded_grammars = LoadedGrammars(backends)
        filler = MaskFiller(rows, vocabulary.SIZE, backends, memory.work)
        return Matching(traits, loaded_grammars, filler, memory, lambda _: None), loaded_grammars

    matchers = MatchersBeside(memory, lambda: Made({}, start))
    matchers.start()
    loaded = matchers.load(Load(key="any", backend="guidance", spec=LLMatcher.grammar_from_regex(r"(.|\n)*")))
    assert not loaded.error, loaded.error
    return matchers


def _bridge(guide: Any, names: list[str], cell: Cell) -> EditsV2:
    """Return EditsV2 as a model runner of as many slots as sequences has it."""
    slots = {name: slot for slot, name in enumerate(names)}
    states = SimpleNamespace(
        max_num_reqs=cell.batch, req_id_to_index=slots, index_to_req_id=dict(enumerate(names))
    )
    runner = SimpleNamespace(
        req_states=states,
        device=torch.device("cpu"),
        num_speculative_steps=cell.drafts,
        batch_sharder=None,
        vocab_size=vocabulary.SIZE,
    )
    return EditsV2(runner, guide)


def _spent(call: Callable[[], Any]) -> Spent:
    cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
    call()
    wall_ns, cpu_ns = time.perf_counter_ns() - wall_ns, time.thread_time_ns() - cpu_ns
    return Spent(wall_ns / 1e3, cpu_ns / 1e3)


def _measured(text: Text, cell: Cell, repetitions: int) -> Host:
    """Measure a cell: all that is compared takes its turn in each repetition."""
    found: dict[str, dict[str, list[Spent]]] = {mode.name: {} for mode in _MODES}
    ranks = [(mode.name, Rank(text, mode, cell)) for mode in _MODES]
    gc.collect()
    gc.freeze()  # as vLLM's workers do
    for repetition in range(-_WARM, repetitions):
        # Whoever comes second finds what the first had in the caches: each pair has both orders.
        turn, order = repetition // 2 % len(ranks), 1 if repetition % 2 else -1
        for name, rank in (*ranks[turn:], *ranks[:turn])[::order]:
            took = rank.step()
            if repetition >= 0:
                for part, spent in took.items():
                    found[name].setdefault(part, []).append(spent)
    gc.unfreeze()
    for _, rank in ranks:
        rank.close()
    return found


def _taken_over(text: Text) -> str:
    """Tell how long a step takes in which the process of the matchers has died."""
    rank, took = Rank(text, _NONE, Cell(_TAKEN_OVER, 0)), []
    for number in range(1, 1 + _STEPS):
        if number % 100 == 0:
            rank.kill()
        spent = rank.step()
        if number % 100 == 0:
            took.append(sum(part.wall for part in spent.values()) / 1e3)
    rank.close()
    return (
        f"{_TAKEN_OVER} sequences whose process died: that step takes {min(took):.0f} to {max(took):.0f} ms, "
        f"with 100 to {_STEPS} tokens of each"
    )


def _whole_steps(host: Host, mode: Mode) -> list[float]:
    """Return the CPU of each whole step, in microseconds, less what only the benchmark asked for."""
    parts = [values for part, values in host[mode.name].items() if part != "prepare"]
    return [sum(spent.cpu for spent in each) for each in zip(*parts, strict=True)]


def _bars(found: Mapping[str, Host]) -> Iterator[Bar]:
    for cell, host in found.items():
        if cell == _DRY_CELL:
            cpu_ms = statistics.median(spent.cpu for spent in host["DRY"]["prepare"]) / 1e3
            asks = f"{cell}: DRY's prepare <= {_DRY_MS:g} ms of one thread's CPU"
            yield Bar(asks, f"{cpu_ms:.2f} ms", cpu_ms <= _DRY_MS)
        ratio = paired_ratio(_whole_steps(host, _UNUSED), _whole_steps(host, _NONE))
        asks = f"{cell}: a step costs nothing measurable where no request has a processor"
        yield Bar(asks, f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})", ratio.low <= 1)


def _rows(found: Mapping[str, Host]) -> Iterator[str]:
    parts = ("begin", "accept", "ask", "prepare", "edits", "masks", "stage", "sampled")
    yield f"| us of a step, of it CPU; edits with prepare | {' | '.join(parts)} |"
    yield "|---" * (1 + len(parts)) + "|"
    for cell, host in found.items():
        for mode, took in host.items():
            cells = []
            for part in parts:
                wall, cpu = map(statistics.median, zip(*took.get(part, [Spent(0, 0)]), strict=True))
                cells.append(f"{wall:.0f} ({cpu:.0f})")
            yield f"| {cell}, {mode} | {' | '.join(cells)} |"


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    torch.set_num_threads(1)
    names = os.environ.get("CELLS", "")
    cells = [cell for cell in _CELLS if not names or cell.name in names.split(",")]
    repetitions = int(os.environ.get("REPS") or _REPETITIONS)
    text = Text.read()
    found = {cell.name: _measured(text, cell, repetitions) for cell in cells}
    judged = list(_bars(found))
    about = f"commit {commit.name()}, {os.cpu_count()} cores, {repetitions} repetitions"
    lines = [f"{about}; {vocabulary.SIZE} tokens", "", *_rows(found), "", *table(judged)]
    print("\n".join([*lines, "", _taken_over(text)]))
    return 1 if any(bar.met is False for bar in judged) else 0


if __name__ == "__main__":
    sys.exit(main())

"""A rank without an engine, whose sequences continue a real text; what each part of a step takes."""

import time
from collections.abc import Callable, Iterator, Mapping
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any, Final

import torch
import vocabulary
from llguidance import LLMatcher
from transformers import AutoTokenizer

from guided_contract.config import LogitsProcessorConfig
from guided_contract.wire import Load, Ticket
from guided_engine.compat.edits_v2 import EditsV2
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry, Running
from guided_engine.ranks.arrivals import RankTraits
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.guided_rank import RankGuide
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.ranks.step import Arrival, Plan
from guided_grammar.registry import Backends, Tokenizer
from processorbench.cells import NONE, UNUSED, Cell, Mode, Spent

_HISTORY: Final = 4096  # tokens, all of the prompt's
_SHIPPED: Final = "guided_engine.processors"


class Text:
    """What all ranks of a run share: a text of the standard library, as this vocabulary has it."""

    def __init__(self) -> None:
        tokenizer = AutoTokenizer.from_pretrained(vocabulary.folder())
        text = "\n".join(topics[name] for name in sorted(topics))
        self.backends = Backends(Tokenizer(tokenizer, vocabulary.SIZE))
        self.loaded_grammars = LoadedGrammars(self.backends)
        self.tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        self.context = Context(
            vocab_size=vocabulary.SIZE,
            token_bytes=self.backends["guidance"].tokens(),
            stop_tokens=frozenset({vocabulary.EOS}),
        )
        spec = LLMatcher.grammar_from_regex(r"(.|\n)*")
        loaded = self.loaded_grammars.load(Load(key="any", backend="guidance", spec=spec))
        assert not loaded.error, loaded.error

    def modes(self) -> list[Mode]:
        """Return what is measured side by side."""

        def shipped(name: str, place: str, **params: Any) -> LogitsProcessorConfig:
            return LogitsProcessorConfig(name=name, factory=f"{_SHIPPED}.{place}", params=params)

        each = (
            shipped("DRY", "dry:Dry"),
            shipped("NoRepeatNgram", "no_repeat_ngram:NoRepeatNgram", include_prompt=True),
        )
        return [NONE, Mode(UNUSED.name, each, is_guided=True), *(Mode(one.name, (one,)) for one in each)]


class _Noting(Registry):
    """Notes what it makes, so that processors can be asked beside the rank."""

    made: Mapping[str, list[Running]]

    def create(self, arguments: Any, info: Any, **options: Any) -> Iterator[Running]:
        made = list(super().create(arguments, info, **options))
        self.made = {**getattr(self, "made", {}), info.request_id: made}
        return iter(made)


class Rank:
    """One mode's sequences in one cell.

    Attributes
    ----------
    edits
        Those of its last step.
    """

    def __init__(self, text: Text, mode: Mode, cell: Cell) -> None:
        self._cell, self._tokens = cell, text.tokens
        rows = cell.batch * (1 + cell.drafts)
        self._registry = _Noting(mode.processors, text.context)
        self.guide = RankGuide(
            RankTraits(0, vocabulary.SIZE, is_async=True),
            text.loaded_grammars,
            self._registry,
            BitmaskBuffer(rows, vocabulary.SIZE, text.backends),
            lambda _: None,
        )
        self.names = [f"r{number}" for number in range(cell.batch)]
        self._bridge = bridge(self.guide, self.names, cell, "cpu") if mode.processors else None
        spread = (len(self._tokens) - 2 * _HISTORY) // cell.batch
        self._at = {name: _HISTORY + number * spread for number, name in enumerate(self.names)}
        prompts = {name: self._tokens[at - _HISTORY : at] for name, at in self._at.items()}
        arrivals = [
            Arrival(
                request_id=name,
                prompt_tokens=prompt,
                prompt_length=len(prompt),
                known_tokens=None,
                computed=0,
                is_guided=mode.is_guided,
                ticket=Ticket(key="any", backend="guidance"),
                stop_tokens=[vocabulary.EOS],
                arguments={"logits_processors": []} if mode.is_guided and mode.processors else {},
            )
            for name, prompt in prompts.items()
        ]
        self._computed = _HISTORY
        self.guide.begin(Plan({}, arrivals, {}, (), dict.fromkeys(self.names, _HISTORY), {}))
        self.edits = self.guide.edits()
        self._sample(1)

    def step(self) -> dict[str, Spent]:
        """Take a step in which all drafts are right; return what its parts took."""
        guide, cell, bridge = self.guide, self._cell, self._bridge
        count = 1 + cell.drafts
        computed = [(name, self._computed) for name in self.names]
        drafts = {name: self._tokens[at : at + cell.drafts] for name, at in self._at.items() if cell.drafts}
        plan = Plan({}, (), {}, computed, dict.fromkeys(self.names, count), drafts)
        took = {"begin": _spent(lambda: guide.begin(plan)), "accept": _spent(guide.settle)}
        took["masks"] = _spent(guide.masks)
        took["prepare"] = _spent(lambda: self._prepare(drafts))
        took["edits"] = _spent(lambda: setattr(self, "edits", guide.edits()))
        if bridge is not None:
            took["stage"] = _spent(lambda: bridge.stage(self.edits, drafts))
            bridge.taken()
        took["sampled"] = _spent(lambda: self._sample(count))
        self._computed += count
        if ends := guide.ends():
            raise RuntimeError(f"sequences failed: {ends[:3]}")
        return took

    def _prepare(self, drafts: Mapping[str, list[int]]) -> None:
        made: Mapping[str, list[Running]] = getattr(self._registry, "made", {})
        for name, running in made.items():
            for _, _, processor in running:
                processor.prepare(drafts.get(name, ()))

    def _sample(self, count: int) -> None:
        sampled = [(name, self._tokens[at : at + count]) for name, at in self._at.items()]
        self._at = {name: at + count for name, at in self._at.items()}
        self.guide.sampled(lambda: sampled)


def bridge(guide: Any, names: list[str], cell: Cell, device: str) -> EditsV2:
    """Return EditsV2 as a model runner of as many slots as sequences has it."""
    slots = {name: slot for slot, name in enumerate(names)}
    states = SimpleNamespace(
        max_num_reqs=cell.batch, req_id_to_index=slots, index_to_req_id=dict(enumerate(names))
    )
    runner = SimpleNamespace(
        req_states=states,
        device=torch.device(device),
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

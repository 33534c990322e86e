"""One rank without an engine, taken step by step as a runner's adapter takes it: real matchers, real rows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from guided_contract.config import LogitsProcessorConfig
from guided_contract.wire import Load, Ticket
from guided_engine.matchers import messages
from guided_engine.matchers.bitmasks import MaskFiller
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.matchers.matching import Matching, RankTraits
from guided_engine.matchers.memory import SharedMemory
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.step import Arrival, Plan, SampledTokens
from guided_grammar.registry import Backends

TOKENIZER = LLTokenizer("byte")
VOCAB = TOKENIZER.vocab_size
EOS = TOKENIZER.eos_token
A, B, C = b"abc"


class ByteVocabulary:
    """One token per byte, for llguidance; no test here needs another library's form."""

    def native(self, name: str) -> Any:
        if name != "guidance":
            raise NotImplementedError
        return TOKENIZER


def made(traits: RankTraits, memory: SharedMemory, send: Any) -> tuple[Matching, LoadedGrammars]:
    """Return a rank's matchers."""
    backends = Backends(ByteVocabulary())
    loaded_grammars = LoadedGrammars(backends)
    filler = MaskFiller(64, VOCAB, backends, memory.work)
    return Matching(traits, loaded_grammars, filler, memory, send), loaded_grammars


class MatchersHere:
    """A rank's matchers without their process: each message goes through its encoding all the same."""

    def __init__(self, traits: RankTraits, records: list[Any]) -> None:
        self.memory = SharedMemory(64, VOCAB)
        self.matching, self.loaded_grammars = made(traits, self.memory, records.append)
        self.load = self.loaded_grammars.load
        self.answers: list[bytes] = []

    def send(self, *some: messages.Message) -> None:
        for taken in messages.decode(messages.encode(some)):
            answer = self.matching.take(taken)
            if isinstance(taken, messages.Ask):
                assert answer is not None
                self.answers.append(messages.encode(answer))
                self.matching.answered(taken.slot)

    def answer(self) -> messages.Answer:
        return messages.decode_answer(self.answers.pop(0))

    def renew(self) -> None:
        raise NotImplementedError

    def missing(self, _key: str) -> None:
        return None

    text = missing

    def close(self) -> None:
        pass


class Sampled:
    """What a step sampled, on the host."""

    def __init__(self, tokens: Mapping[str, Sequence[int]]) -> None:
        self._tokens = tokens

    def is_here(self) -> bool:
        return True

    def read(self) -> SampledTokens:
        return SampledTokens.of(list(self._tokens), list(self._tokens.values()))


class Rank:
    """A guide, and the short way to take it through a step."""

    def __init__(self, processors: Sequence[LogitsProcessorConfig] = (), **traits: Any) -> None:
        """Make it; `traits` are of RankTraits."""
        self.records: list[Any] = []
        self.ended: dict[str, str] = {}
        self.known: dict[str, int] = {}  # tokens of each request, so far
        told = RankTraits(**{"rank": 0, "vocab_size": VOCAB, "is_async": True} | traits)
        self.matchers = self._matchers(told)
        registry = Registry(processors, Context(vocab_size=VOCAB, stop_tokens=frozenset({EOS})))
        self.guide = RankGuide(told, self.matchers, registry, self.records.append)

    def _matchers(self, traits: RankTraits) -> Any:
        return MatchersHere(traits, self.records)

    def sequence(self, request_id: str) -> Any:
        """Return what its matchers know of a sequence."""
        return self.matchers.matching._tracking.by_request[request_id]

    def load(self, pattern: str) -> Ticket:
        loaded = self.matchers.load(
            Load(key=pattern, backend="guidance", spec=LLMatcher.grammar_from_regex(pattern))
        )
        assert not loaded.error
        return Ticket(key=pattern, backend="guidance")

    def step(  # noqa: PLR0913 - a Plan's parts, by name
        self,
        arrivals: Sequence[Arrival] = (),
        *,
        computed: Mapping[str, int] | None = None,
        scheduled: Mapping[str, int] | None = None,
        drafts: Mapping[str, Sequence[int]] | None = None,
        learned: Mapping[str, Sequence[int]] | None = None,
        resumed: Mapping[str, Sequence[int]] | None = None,
        finished: Collection[str] = (),
    ) -> Any:
        """Begin a step and return its masks; an arrival is scheduled with its prompt unless told.

        `learned`: drafts of the last step as the runner alone knows them.
        """
        whole = {one.request_id: len(one.known_tokens or one.prompt_tokens) for one in arrivals}
        self.known |= whole
        self.guide.begin(
            Plan(
                finished=finished,
                arrivals=arrivals,
                resumed=resumed or {},
                computed=[*(computed or {}).items()],
                scheduled={**whole, **(scheduled or {})},
                drafts=drafts or {},
            )
        )
        if learned:
            self.guide.learn_drafts(list(learned), list(learned.values()))
        return self.guide.masks() if self.guide.is_sampling else None

    def sampled(self, **tokens: Sequence[int]) -> dict[str, str]:
        for name, some in tokens.items():
            self.known[name] += len(some)
        self.guide.sampled(Sampled(tokens))
        ends = {end.request_id: end.code for end in self.guide.ends()}
        self.ended |= ends
        return ends

    def next(
        self,
        *names: str,
        drafts: Mapping[str, Sequence[int]] | None = None,
        learned: Mapping[str, Sequence[int]] | None = None,
        **tokens: Sequence[int],
    ) -> Any:
        """End a step with what it sampled, and begin one of these requests, or of those that sampled."""
        self.sampled(**tokens)
        among = names or tuple(tokens)
        computed = {name: self.known[name] - 1 for name in among}
        scheduled = {name: 1 + len((drafts or {}).get(name, ())) for name in among}
        return self.step(computed=computed, scheduled=scheduled, drafts=drafts, learned=learned)


def arrival(request_id: str, ticket: Ticket | None, **fields: Any) -> Arrival:
    plain = {"known_tokens": None, "computed": 0, "is_guided": True, "stop_tokens": [EOS], "arguments": {}}
    prompt = fields.pop("prompt_tokens", [1, 2, 3])
    return Arrival(request_id, prompt, len(prompt), ticket=ticket, **plain | fields)


def allowed(masks: Any, row: int = 0) -> list[int]:
    bits = np.unpackbits(np.ascontiguousarray(masks.bitmask[row]).view(np.uint8), bitorder="little")
    return np.flatnonzero(bits)[:VOCAB].tolist()


def rows(masks: Any) -> list[list[int]]:
    """Return what each row of a step allows."""
    return [allowed(masks, row) for row in range(len(masks.bitmask))]


def forbidden(masks: Any, row: int = 0) -> set[int]:
    return {*range(VOCAB)} - {*allowed(masks, row)}


def acceptable(masks: Any) -> dict[str, int]:
    """Return how many drafts of each request were constrained."""
    return dict(zip(masks.request_ids, masks.acceptable, strict=True))

"""A backend without a library: a grammar is a list of texts. For tests, and to begin another one from.

It takes `choice` alone. Registered as `Entry("fake", "support.fake_backend", ...)` it serves like any other.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from guided_contract import fingerprint
from guided_contract.wire import Kind
from guided_grammar.backend import BackendError, Library, Threads, Unsupported
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher

_REFUSAL: Final = "the fake takes choices only"
Rests = Sequence[bytes]  # what may still follow, of each text that has begun as the sequence has


class FakeTokenizer(NamedTuple):
    """Each token's text, empty where it is none by itself, the end's token, and the tokens of each text."""

    tokens: list[bytes]
    end: int
    named: dict[bytes, list[int]]

    @classmethod
    def of(cls, tokens: list[bytes], end: int) -> Self:
        named: dict[bytes, list[int]] = {}
        for token, text in enumerate(tokens):
            named.setdefault(text, []).append(token)
        return cls(tokens, end, named)


class FakeMatcher(Matcher):
    """One sequence's state."""

    backend = "fake"

    def __init__(self, texts: Rests, tokenizer: FakeTokenizer) -> None:
        super().__init__((tokenizer.end,))
        self._texts = self._rests = texts
        self._tokenizer = tokenizer

    def fill_rows(self, guided: GuidedRows["FakeMatcher"], bitmask: Bitmask) -> None:
        """Write a guided's rows, as far as its drafts are allowed."""
        rests, end = self._rests, self._tokenizer.end
        self._write(rests, bitmask[guided.row])
        guided.filled = 1
        for draft in guided.drafts:
            rests = self._after(rests, draft)
            if not rests:
                return
            guided.valid += 1
            if draft == end:
                return
            self._write(rests, bitmask[guided.row + guided.valid])
            guided.filled += 1

    def _after(self, rests: Rests, token: int) -> Rests:
        """Return the rests after one more token, none if it is not allowed."""
        if token == self._tokenizer.end:
            return [rest for rest in rests if not rest]
        text = self._tokenizer.tokens[token]
        return [rest[len(text) :] for rest in rests if text and rest.startswith(text)]

    def _write(self, rests: Rests, row: Bitmask) -> None:
        row[:] = 0
        begun = {rest[:length] for rest in rests for length in range(1, len(rest) + 1)}
        allowed = [token for text in begun for token in self._tokenizer.named.get(text, ())]
        for token in [*allowed, *([self._tokenizer.end] if b"" in rests else [])]:
            row.view("uint32")[token >> 5] |= 1 << (token & 31)

    def _consume(self, tokens: Sequence[int]) -> bool:
        for token in tokens:
            self._rests = self._after(self._rests, token)
        return bool(self._rests)

    def _count_valid(self, drafts: Sequence[int]) -> int:
        rests = self._rests
        for index, draft in enumerate(drafts):
            rests = self._after(rests, draft)
            if not rests:
                return index
        return len(drafts)

    def _fill(self, bitmask: Bitmask, row: int) -> None:
        self._write(self._rests, bitmask[row])

    def _rewind(self) -> None:
        self._rests = self._texts


class FakeGrammar:
    """A list of texts."""

    backend = "fake"
    memory_bytes = 0

    def __init__(self, source: str, tokenizer: FakeTokenizer) -> None:
        self.vocab_size = len(tokenizer.tokens)
        self._source = source
        self._tokenizer = tokenizer

    def matcher(self, stop_tokens: Sequence[int] | None = None) -> FakeMatcher:  # noqa: ARG002 - see Loaded
        return FakeMatcher([text.encode() for text in json.loads(self._source)], self._tokenizer)

    def source(self) -> str:
        return self._source


class FakeBackend:
    """The fake with one tokenizer."""

    is_worn = False

    def __init__(self, tokenizer: FakeTokenizer) -> None:
        self.vocab_size = len(tokenizer.tokens)
        self.stop_tokens = frozenset((tokenizer.end,))
        self._tokenizer = tokenizer

    def compile(self, kind: Kind, spec: str) -> FakeGrammar:
        if kind != "choice":
            raise BackendError(_REFUSAL)
        return FakeGrammar(spec, self._tokenizer)

    def load(self, source: str) -> FakeGrammar:
        return FakeGrammar(source, self._tokenizer)

    def fill(self, batch: Sequence[GuidedRows[FakeMatcher]], bitmask: Bitmask) -> None:
        for guided in batch:
            guided.matcher.fill_rows(guided, bitmask)

    def tokens(self) -> Sequence[bytes]:
        return self._tokenizer.tokens


class FakeLibrary:
    """The fake, as guided_grammar.backend.Library has it."""

    compares_spellings = False
    first_for = frozenset[Kind]()
    counts_minimum_alone = False

    def read(self, tokenizer: Any, vocab_size: int) -> FakeTokenizer:
        texts = [str(tokenizer.decode([token])) for token in range(min(vocab_size, len(tokenizer)))]
        tokens = [b"" if "\ufffd" in text else text.encode() for text in texts]
        tokens += [b""] * (vocab_size - len(tokens))
        return FakeTokenizer.of(tokens, int(tokenizer.eos_token_id))

    def fingerprint(self, native: FakeTokenizer) -> str:
        return fingerprint.of(len(native.tokens), str(native.end), native.tokens)

    def open(self, native: Any, threads: Threads) -> FakeBackend:  # noqa: ARG002 - Library's
        return FakeBackend(native)

    def lacks(self, kind: Kind, value: Any) -> Unsupported | None:  # noqa: ARG002 - Library's
        return None if kind == "choice" else Unsupported(None, _REFUSAL)


LIBRARY: Final[Library] = FakeLibrary()

"""Texts that come to their end before `max_tokens` cuts them, under a grammar too."""

import functools
import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, NamedTuple

import numpy as np
from msgspec import Meta

from guided_engine.processors.interface import (
    Context,
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)

# What is added, far above what logits are: of what the grammar allows the highest is taken.
_STOPS: Final = 4000.0
_CLOSES: Final = 2000.0
_IS_SHORT: Final = 1000.0
_BEGINS_STRING: Final = 750.0
_GOES_ON: Final = 500.0
_SAYS_NOTHING: Final = -1000.0
_EACH_BRACKET: Final = 20.0  # that the same token closes, up to
_MOST_BRACKETS: Final = 40
_MOST_TOKENS: Final = 256  # of a kind: the processors of a sequence share the ids of its Edits
_STOP_LISTS: Final = 64  # whose Edits are kept

_STRING_ENDS: Final = re.compile(rb'\s*"[\s}\])]*')
_BRACKETS_CLOSE: Final = re.compile(rb"\s*[}\])][\s}\])]*")
_SHORT_VALUE: Final = re.compile(rb'\s*(""|\[\]|\{\})')
_STRING_BEGINS: Final = re.compile(rb'\s*"')
_SEPARATOR: Final = re.compile(rb'\s*[,:]\s*"?')
_WHITE_SPACE: Final = re.compile(rb"\s+")
_STRUCTURE: Final = re.compile(rb'[\[\](){}"\\\n]')


class ClosingParams(Params, frozen=True):
    """What Closing can be told.

    Attributes
    ----------
    within
        How many tokens before `max_tokens` it begins.
    """

    within: Annotated[int, Meta(ge=1, le=4096)] = 64


class JsonState(NamedTuple):
    """Where a text stands, read as JSON.

    Attributes
    ----------
    depth
        Brackets that are open.
    in_string
        Whether it is within a string.
    escaped
        Whether its last byte is a backslash that counts.
    """

    depth: int = 0
    in_string: bool = False
    escaped: bool = False

    def after(self, text: bytes) -> "JsonState":
        """Return where it stands when it goes on."""
        depth, in_string, escaped = self.depth, self.in_string, 0 if self.escaped else -1
        for found in _STRUCTURE.finditer(text):
            byte = found[0]
            if byte == b"\n":  # in no string of JSON: what looked like one's beginning was prose
                in_string = False
            elif in_string:
                if found.start() == escaped:
                    continue
                if byte == b"\\":
                    escaped = found.end()
                in_string = byte != b'"'
            elif byte == b'"':
                in_string = True
            elif byte in b"[({":
                depth += 1
            elif byte in b"])}":
                depth = max(0, depth - 1)
        return JsonState(depth, in_string, in_string and escaped == len(text))


class Closing(ProcessorFactory[ClosingParams]):
    """Brings a text that a grammar holds to its end before `max_tokens` cuts it.

    In its last `within` tokens it favours, in this order, what the grammar allows of: stop tokens; what
    closes the string or else the brackets that are open; the shortest values; commas and colons; and outside
    of strings anything before white space. It forbids nothing: what else the text needs the grammar decides,
    and what it says the model.

    - The end is reached where `within` tokens are enough for what the grammar still demands, as the model
      spells it: required properties, `minItems`, names and constants, a string's pattern or `minLength`.
      Choose it for the schema.
    - Texts without a grammar, and grammars that allow the end anywhere, end `within` tokens early, in the
      midst of a sentence, and their finish_reason is "stop". The same goes for a model that still reasons.
    - It knows the text's tokens alone. Where prose has an odd number of quotes in the line in which JSON
      begins, it takes strings for what is between them.
    - Sequences without `max_tokens` are left alone.
    """

    Params = ClosingParams
    request_params: ClassVar[frozenset[str]] = frozenset({"within"})

    def __init__(self, params: ClosingParams, context: Context) -> None:
        super().__init__(params, context)
        if not any(context.token_bytes):
            raise ValueError("the text of the model's tokens is unknown, so closing tokens cannot be found")
        self._string_ends = self._tokens(_STRING_ENDS, _CLOSES)
        self._brackets_close = self._tokens(_BRACKETS_CLOSE, _CLOSES)
        self._outside = (
            self._tokens(_SHORT_VALUE, _IS_SHORT)
            | self._tokens(_STRING_BEGINS, _BEGINS_STRING)
            | self._tokens(_SEPARATOR, _GOES_ON)
            | self._tokens(_WHITE_SPACE, _SAYS_NOTHING)
        )
        self._edits = functools.lru_cache(_STOP_LISTS)(self._edits_of)

    def create(self, sequence: SequenceInfo[ClosingParams]) -> SequenceProcessor | None:
        """Return the processor of a sequence that has generated nothing; None: nothing cuts it."""
        if sequence.max_tokens is None:
            return None
        begins = sequence.max_tokens - sequence.params.within
        return _Text(self.context.token_bytes, self._edits(sequence.stop_tokens), begins)

    def _tokens(self, pattern: re.Pattern[bytes], value: float) -> dict[int, float]:
        """Return the tokens of a kind with what is added to each, the shortest if there are too many."""
        texts = self.context.token_bytes
        found = [token for token, text in enumerate(texts) if pattern.fullmatch(text)]
        found.sort(key=lambda token: len(texts[token]))
        brackets = {token: sum(map(texts[token].count, (b"}", b"]", b")"))) for token in found[:_MOST_TOKENS]}
        return {token: value + _EACH_BRACKET * min(n, _MOST_BRACKETS) for token, n in brackets.items()}

    def _edits_of(self, stop_tokens: frozenset[int]) -> "_Favours":
        stops = dict.fromkeys(sorted(stop_tokens), _STOPS)
        return _Favours(
            in_string=_favouring(self._string_ends | stops),
            in_brackets=_favouring(self._outside | self._brackets_close | stops),
            outside=_favouring(self._outside | stops),
        )


class _Favours(NamedTuple):
    in_string: Edits
    in_brackets: Edits
    outside: Edits

    def at(self, state: JsonState) -> Edits:
        if state.in_string:
            return self.in_string
        return self.in_brackets if state.depth else self.outside


def _favouring(values: dict[int, float]) -> Edits:
    ids = sorted(values)
    return Edits.add(np.array(ids, np.int32), np.array([values[token] for token in ids], np.float32))


class _Text(SequenceProcessor):
    def __init__(self, texts: Sequence[bytes], favours: _Favours, begins: int) -> None:
        self._texts = texts
        self._favours = favours
        self._until = begins  # how many tokens may come until it begins
        self._state = JsonState()

    def prepare(self, ahead: Sequence[int]) -> Sequence[Edits | None]:
        state = self._state
        rows = [self._row(state, 0)]
        for number, token in enumerate(ahead, start=1):
            state = state.after(self._texts[token])
            rows.append(self._row(state, number))
        return rows

    def accept(self, tokens: Sequence[int]) -> None:
        self._until -= len(tokens)
        self._state = self._state.after(b"".join([self._texts[token] for token in tokens]))

    def _row(self, state: JsonState, ahead: int) -> Edits | None:
        return self._favours.at(state) if ahead >= self._until else None

"""Whether the masks that reached the sampler are right: bit for bit those of a fresh matcher."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.int32]  # [ceil(vocab / 32)] one bit per token, 1 = allowed
_SHOWN_TOKENS: Final = 5


class SampledRow(msgspec.Struct, frozen=True):
    """One row of one step's mask, as the sampler got it.

    `tokens` are what the sequence generated before it, the drafts before it in the same step included.
    """

    sequence: int
    tokens: list[int]
    mask: bytes


class ReferenceMatcher(Protocol):
    """A matcher that nothing of the measured path has touched."""

    def accept(self, token: int) -> bool:
        """Advance by a token; False: not allowed."""

    def mask(self) -> Mask:
        """Return the mask of the next token."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison found; `faults` are lines to be read."""

    compared: int
    skipped: int
    faults: list[str]


def compare(rows: Iterable[SampledRow], matcher_of: Callable[[int], ReferenceMatcher | None]) -> Verdict:
    """Compare rows with fresh matchers.

    A row behind a draft that the grammar forbids is skipped: sampling never gets there. So is one for whose
    sequence there is no matcher.
    """
    compared = skipped = 0
    faults = []
    for row in rows:
        matcher = matcher_of(row.sequence)
        if matcher is None or not all(matcher.accept(token) for token in row.tokens):
            skipped += 1
            continue
        compared += 1
        got, wanted = np.frombuffer(row.mask, dtype=np.int32), matcher.mask()
        if not np.array_equal(got, wanted):
            faults.append(_explained(row, got, wanted))
    return Verdict(compared, skipped, faults)


def _explained(row: SampledRow, got: Mask, wanted: Mask) -> str:
    extra, missing = _tokens(got & ~wanted), _tokens(wanted & ~got)
    return (
        f"sequence {row.sequence} after {len(row.tokens)} tokens: {len(extra)} tokens wrongly allowed "
        f"{extra[:_SHOWN_TOKENS]}, {len(missing)} wrongly forbidden {missing[:_SHOWN_TOKENS]}"
    )


def _tokens(mask: Mask) -> Sequence[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    found: list[int] = np.flatnonzero(bits).tolist()
    return found


class _XGrammar:
    def __init__(self, native: Any, words: int) -> None:
        self._native = native
        self._words = words

    def accept(self, token: int) -> bool:
        return bool(self._native.accept_token(token))

    def mask(self) -> Mask:
        mask = np.full((1, self._words), -1, dtype=np.int32)
        self._native.fill_next_token_bitmask(mask, 0)
        first: Mask = mask[0]
        return first


class _Guidance:
    def __init__(self, native: Any, words: int) -> None:
        self._native = native
        self._words = words

    def accept(self, token: int) -> bool:
        return bool(self._native.consume_token(token))

    def mask(self) -> Mask:
        import llguidance.numpy  # noqa: PLC0415 - as its package

        mask = np.zeros((1, self._words), dtype=np.int32)
        llguidance.numpy.fill_next_token_bitmask(self._native, mask, 0)
        first: Mask = mask[0]
        return first


class References:
    """Fresh matchers of either library, straight from the schema: nothing of ours is in between."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        import llguidance.hf  # noqa: PLC0415 - needed where masks are checked only
        import xgrammar  # noqa: PLC0415 - see above

        self._xgrammar: Any = xgrammar
        self._llguidance: Any = llguidance
        self._words = (vocab_size + 31) // 32
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        self._compiler: Any = xgrammar.GrammarCompiler(info, max_threads=4)
        self._guidance_tokenizer: Any = llguidance.hf.from_tokenizer(tokenizer, vocab_size)

    def matcher(self, backend: str, schema: str) -> ReferenceMatcher:
        """Return a matcher at the start of a schema, white space being free as in upstream's default."""
        if backend == "xgrammar":
            compiled = self._compiler.compile_json_schema(schema, any_whitespace=True)
            return _XGrammar(self._xgrammar.GrammarMatcher(compiled), self._words)
        grammar = self._llguidance.LLMatcher.grammar_from_json_schema(
            schema, defaults={"whitespace_flexible": True}
        )
        return _Guidance(
            self._llguidance.LLMatcher(self._guidance_tokenizer, grammar, log_level=0), self._words
        )

    def accepts(self, backend: str, schema: str, tokens: Sequence[int]) -> bool:
        """Tell whether a library takes a schema, and tokens under it."""
        try:
            matcher = self.matcher(backend, schema)
        except (RuntimeError, ValueError):
            return False
        return all(matcher.accept(token) for token in tokens)

"""llguidance with one tokenizer: compiles as vLLM 0.32 does (v1/structured_output/backend_guidance.py).

A choice is written otherwise, so that it may be long, and a tag is one grammar (tags.py). Other masks are
equal; the contract test compares them with vLLM's own class.
"""

import functools
import json
import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

import llguidance

from guided_contract.wire import Kind
from guided_grammar.backend import ANY_OBJECT, BackendError, Threads, one_line
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.json_schema import subschemas
from guided_grammar.llguidance.matcher import GuidanceFiller, GuidanceMatcher, Prototype
from guided_grammar.llguidance.tags import as_lark
from guided_grammar.masks import Bitmask
from guided_grammar.texts import choice_as_lark, one_of

# Of what is kept, for each second of CPU that it takes to make: 30 to 140 MB. To ask malloc takes 4 ms.
_BYTES_A_SECOND: Final = 140e6


class GuidanceBackend:
    """vLLM's GuidanceBackend without vLLM, with an llguidance.LLTokenizer; a compile has one thread."""

    is_worn = False

    def __init__(self, tokenizer: Any, threads: Threads) -> None:
        self.vocab_size = int(tokenizer.vocab_size)
        self.stop_tokens = frozenset((tokenizer.eos_token,))
        self._tokenizer = tokenizer
        # Each made once, at the first use or before.
        self._filler = functools.cache(lambda: GuidanceFiller(threads.fill))
        self._tokens = functools.cache(
            lambda: [tokenizer.decode_bytes([token]) for token in range(tokenizer.vocab_size)]
        )
        self._special = functools.cache(lambda: _special(tokenizer))
        self._named = functools.cache(lambda: one_of(self._special()))

    def compile(self, kind: Kind, spec: str) -> "GuidanceGrammar":
        """Compile one grammar; see Backend."""
        self._refuse_special(kind, spec)
        try:
            text = self._serialised(kind, spec)
        except MemoryError:
            raise
        except Exception as error:  # whatever a library trips over in a client's text
            raise BackendError(one_line(error)) from error
        grammar = GuidanceGrammar(self._tokenizer, text)
        for said in grammar.warnings():
            warnings.warn(said, stacklevel=2)
        return grammar

    def load(self, source: str) -> "GuidanceGrammar":
        """Compile what a worker compiled; see Backend."""
        try:
            return GuidanceGrammar(self._tokenizer, source)
        except BackendError:
            raise BackendError("llguidance refuses the grammar") from None  # its message may quote the text

    def fill(self, batch: Sequence[GuidedRows[GuidanceMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences; see Backend."""
        self._filler().fill(batch, bitmask)

    def tokens(self) -> Sequence[bytes]:
        """Return each token's bytes; see Backend."""
        return self._tokens()

    def _refuse_special(self, kind: Kind, spec: str) -> None:
        """Refuse what llguidance would have written as a special token, which no reader of an answer sees.

        Where a grammar leaves one text alone, llguidance takes the tokens that the tokenizer makes of it. A
        structural tag's own texts, and what a Lark grammar has between `<` and `>`, mean the tokens.
        """
        if kind == "structural_tag":
            texts = list[str]()
            subschemas.with_each_of_tag(
                json.loads(spec), lambda _, schema: texts.append(json.dumps(schema, ensure_ascii=False))
            )
        else:
            texts = [] if kind == "grammar" else [spec if kind == "regex" else _unescaped(spec)]
        for text in texts:
            if found := self._named().search(text.replace("\\", "")):
                raise BackendError(f"llguidance does not support {found[0]} as text, it is a special token")

    def _serialised(self, kind: Kind, spec: str) -> str:
        if kind in ("json", "json_object"):
            options = {"whitespace_flexible": True}
            return str(llguidance.LLMatcher.grammar_from_json_schema(spec or ANY_OBJECT, defaults=options))
        if kind == "structural_tag":
            kind, spec = "grammar", as_lark(json.loads(spec), self._special(), self._tokenizer.eos_token)
        if kind == "choice":
            kind, spec = "grammar", choice_as_lark(json.loads(spec))
        return str(llguidance.grammar_from(kind, spec))


def _special(tokenizer: Any) -> dict[str, int]:
    """Return the ids of special tokens by their texts."""
    numbers = filter(tokenizer.is_special_token, range(tokenizer.vocab_size))
    named = {tokenizer.decode_bytes([number]).decode(errors="replace"): number for number in numbers}
    return {text: number for text, number in named.items() if text}


def _unescaped(spec: str) -> str:
    """Return JSON without the escapes of letters."""
    return json.dumps(json.loads(spec), ensure_ascii=False) if "\\u" in spec else spec


class GuidanceGrammar:
    """A compiled grammar, whose text ranks compile again; BackendError: llguidance does not take it."""

    backend = "guidance"

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.vocab_size = int(tokenizer.vocab_size)
        self._text = text
        self._eos_token = int(tokenizer.eos_token)
        start = time.thread_time()
        self._prototype = Prototype(lambda: llguidance.LLMatcher(tokenizer, text, log_level=0))
        self.memory_bytes = int((time.thread_time() - start) * _BYTES_A_SECOND)
        if self._prototype.native.is_error():
            raise BackendError(one_line(self._prototype.native.get_error()))

    def warnings(self) -> list[str]:
        """Return what llguidance says of a grammar that it took all the same."""
        return list(self._prototype.native.get_grammar_warnings())

    def source(self) -> str:
        """Return llguidance's own text of the grammar."""
        return self._text

    def matcher(self, stop_tokens: Sequence[int] | None = None) -> GuidanceMatcher:  # noqa: ARG002 - see Loaded
        """Return a matcher at the grammar's start, which ends as upstream's: see GuidanceMatcher."""
        return GuidanceMatcher(self._prototype, self._eos_token)

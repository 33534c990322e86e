"""Compiles a grammar with either library, just as vLLM 0.32 does (v1/structured_output/backend_*.py).

Equal calls make equal masks; the contract test compares them with vLLM's own classes.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar.texts import choice_as_ebnf, is_lark, is_plain
from guided_sidecar.grammar.vocabulary import Vocabulary

_ANY_OBJECT: Final = '{"type": "object"}'
# What xgrammar compiles within so much CPU time, and holds in so much memory, a rank compiles again: writing
# and loading its artefact takes 5 to 15 times as long.
_QUICK_S: Final = 0.02
_SMALL_BYTES: Final = 1 << 20


class BackendError(Exception):
    """A backend does not take the grammar; the message is the library's own, on one line."""


class Compiled(Protocol):
    """A compiled grammar, ready to be walked and handed to the ranks."""

    backend: Backend
    mask_words: int  # width of a mask row in 32-bit words, as the library wants it
    memory_bytes: int  # what a rank holds of it, where the library tells, else 0

    def source(self) -> str | None:
        """Return what a rank compiles it of again; None: that takes long, and it loads a file."""

    def load_text(self) -> str:
        """Return the artefact's JSON, or llguidance's grammar text."""

    def matcher(self) -> "Matcher":
        """Return a matcher at the grammar's start."""


class Matcher(Protocol):
    """One sequence's state in a grammar."""

    def fill(self, mask: Any) -> None:
        """Write the allowed tokens into `mask`  # [1, ceil(vocab / 32)] int32."""

    def accept(self, token: int) -> bool:
        """Advance by one token; False: not allowed."""

    def has_ended(self) -> bool:
        """Return whether nothing more can follow."""


class XGrammarBackend:
    """vLLM's XgrammarBackend without vLLM.

    Parameters
    ----------
    vocabulary
        The tokenizer.
    threads
        Threads of one compile; upstream takes 8 whatever the container's share of the machine is.

    Attributes
    ----------
    is_worn
        Its cache holds parts that took long: a grammar of these would seem quick, and is not for a rank.
    """

    def __init__(self, vocabulary: Vocabulary, threads: int) -> None:
        import xgrammar  # noqa: PLC0415 - after native.without_torch()

        self._xgrammar: Any = xgrammar
        self.is_worn = False
        # The cache is on because upstream's is: it changes what compiles (FACTS, repeat bounds over 128).
        self._mask_words = _words(vocabulary.vocab_size)
        self._compiler: Any = xgrammar.GrammarCompiler(
            vocabulary.xgrammar_info, max_threads=threads, cache_enabled=True, cache_limit_bytes=64 << 20
        )

    def warm(self) -> None:
        """Compile what nearly every schema holds, so that forked workers inherit it."""
        self._compiler.compile_json_schema(_ANY_OBJECT)
        self.is_worn = False  # ranks have as much

    def compile(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Compiled:
        """Compile one grammar.

        Raises
        ------
        BackendError
            xgrammar does not take it.
        """
        begin_s = time.process_time()
        try:
            grammar = self._grammar(kind, spec, any_whitespace=any_whitespace)
            compiled = (
                self._whole(kind, spec, any_whitespace=any_whitespace)
                if grammar is None
                else self._compiler.compile_grammar(grammar)
            )
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise BackendError(_one_line(error)) from error
        finally:
            is_quick = time.process_time() - begin_s < _QUICK_S
            self.is_worn |= not is_quick
        is_cheap = is_quick and compiled.memory_size_bytes < _SMALL_BYTES
        return _XGrammarCompiled(self._xgrammar, compiled, self._mask_words, grammar if is_cheap else None)

    def _grammar(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Any | None:
        """Return the grammar that upstream's call compiles; None: of this one, only all at once."""
        grammar = self._xgrammar.Grammar
        if not is_plain(spec):
            return None
        if kind in ("json", "json_object"):
            separators = None if any_whitespace else (",", ":")
            return grammar.from_json_schema(
                spec or _ANY_OBJECT, any_whitespace=any_whitespace, separators=separators
            )
        if kind == "regex":
            return grammar.from_regex(spec)
        if kind == "choice":
            return grammar.from_ebnf(choice_as_ebnf(json.loads(spec)))
        return grammar.from_ebnf(spec) if kind == "grammar" and not is_lark(spec) else None

    def _whole(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Any:
        """Compile as upstream does: what is not plain, and what names the compiler's special tokens."""
        if kind in ("json", "json_object"):
            separators = None if any_whitespace else (",", ":")
            return self._compiler.compile_json_schema(
                spec, any_whitespace=any_whitespace, separators=separators
            )
        if kind == "regex":
            return self._compiler.compile_regex(spec)
        if kind == "choice":
            return self._compiler.compile_grammar(choice_as_ebnf(json.loads(spec)))
        if kind == "grammar":
            compile_text = self._compiler.compile_lark if is_lark(spec) else self._compiler.compile_grammar
            return compile_text(spec)
        return self._structural_tag(spec)

    def _structural_tag(self, spec: str) -> Any:
        tag = json.loads(spec)
        if "structures" not in tag:
            return self._compiler.compile_structural_tag(spec)
        items = [
            self._xgrammar.StructuralTagItem(
                begin=item["begin"], schema=json.dumps(item["schema"]), end=item["end"]
            )
            for item in tag["structures"]
        ]
        return self._compiler.compile_structural_tag(items, tag["triggers"])


class GuidanceBackend:
    """vLLM's GuidanceBackend without vLLM."""

    is_worn = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance  # noqa: PLC0415 - with the other libraries, in the template
        import llguidance.numpy  # noqa: PLC0415 - only workers load it

        self._llguidance: Any = llguidance
        self._tokenizer = vocabulary.guidance_tokenizer

    def compile(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Compiled:
        """Compile one grammar.

        Raises
        ------
        BackendError
            llguidance does not take it, or not this tokenizer.
        """
        if self._tokenizer is None:
            raise BackendError("llguidance takes fast tokenizers only")
        try:
            text = self._serialised(kind, spec, any_whitespace=any_whitespace)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise BackendError(_one_line(error)) from error
        compiled = _GuidanceCompiled(self._llguidance, self._tokenizer, text)
        if refusal := compiled.refusal():
            raise BackendError(refusal)
        return compiled

    def _serialised(self, kind: Kind, spec: str, *, any_whitespace: bool) -> str:
        def from_schema(schema: Any) -> str:
            return str(
                self._llguidance.LLMatcher.grammar_from_json_schema(
                    schema, defaults={"whitespace_flexible": any_whitespace}
                )
            )

        if kind in ("json", "json_object"):
            return from_schema(spec or _ANY_OBJECT)
        if kind == "structural_tag":
            tags = list(self._tags(json.loads(spec), from_schema))
            if not tags:
                raise ValueError("the structural tag has no structures")
            return str(self._llguidance.StructTag.to_grammar(tags))
        return str(self._llguidance.grammar_from(kind, spec))

    def _tags(self, tag: Any, from_schema: Callable[[Any], str]) -> Iterator[Any]:
        for item in tag["structures"]:
            begin = item["begin"]
            trigger = next((text for text in tag["triggers"] if begin.startswith(text)), None)
            if trigger is None:
                raise ValueError(f"no trigger begins {begin!r}")
            yield self._llguidance.StructTag(
                trigger=trigger, begin=begin, grammar=from_schema(item["schema"]), end=item["end"]
            )


class _XGrammarCompiled:
    backend: Backend = "xgrammar"

    def __init__(self, xgrammar: Any, compiled: Any, mask_words: int, grammar: Any | None) -> None:
        self.mask_words = mask_words
        self.memory_bytes = int(compiled.memory_size_bytes)
        self._xgrammar = xgrammar
        self._compiled = compiled
        self._grammar = grammar  # where it compiles in no time

    def source(self) -> str | None:
        return None if self._grammar is None else str(self._grammar.serialize_json())

    def load_text(self) -> str:
        return str(self._compiled.serialize_json())

    def matcher(self) -> Matcher:
        return _XGrammarMatcher(self._xgrammar.GrammarMatcher(self._compiled))


class _XGrammarMatcher:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fill(self, mask: Any) -> None:
        mask.fill(-1)  # left as it is where every token is allowed
        self._matcher.fill_next_token_bitmask(mask, 0)

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def has_ended(self) -> bool:
        return bool(self._matcher.is_terminated())


class _GuidanceCompiled:
    backend: Backend = "guidance"
    memory_bytes = 0

    def __init__(self, llguidance: Any, tokenizer: Any, text: str) -> None:
        self.mask_words = _words(tokenizer.vocab_size)
        self._llguidance = llguidance
        self._text = text
        self._prototype = llguidance.LLMatcher(tokenizer, text, log_level=0)

    def refusal(self) -> str:
        return _one_line(self._prototype.get_error()) if self._prototype.is_error() else ""

    def source(self) -> str:
        return self._text

    def load_text(self) -> str:
        return self._text

    def matcher(self) -> Matcher:
        return _GuidanceMatcher(self._llguidance.numpy, self._prototype.deep_copy())


class _GuidanceMatcher:
    def __init__(self, masks: Any, matcher: Any) -> None:
        self._masks = masks
        self._matcher = matcher

    def fill(self, mask: Any) -> None:
        self._masks.fill_next_token_bitmask(self._matcher, mask, 0)
        if self._matcher.is_error():
            mask.fill(0)  # the library fills in end-of-sequence after an error, which would hide it

    def accept(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))

    def has_ended(self) -> bool:
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()


def _words(vocab_size: int) -> int:
    return (vocab_size + 31) // 32


def _one_line(error: object) -> str:
    """Return a library's message without its time and source line, as `[12:00:00] /project/x.cc:1:`."""
    text = re.sub(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ?", "", str(error))
    return " ".join(text.split())[:500] or type(error).__name__

"""Compiles a grammar with either library, just as vLLM 0.32 does (v1/structured_output/backend_*.py).

Equal calls make equal masks; the contract test compares them with vLLM's own classes.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar.vocabulary import Vocabulary

_ANY_OBJECT = '{"type": "object"}'


class BackendError(Exception):
    """A backend does not take the grammar; the message is the library's own, on one line."""


class Compiled(Protocol):
    """A compiled grammar, ready to be walked and handed to the ranks."""

    backend: Backend
    mask_words: int  # width of a mask row in 32-bit words, as the library wants it

    def load_text(self) -> str:
        """Return what a rank makes its prototype from: the artefact's JSON, or llguidance's grammar text."""

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
    """

    def __init__(self, vocabulary: Vocabulary, threads: int) -> None:
        import xgrammar  # noqa: PLC0415 - after native.without_torch()

        self._xgrammar: Any = xgrammar
        # The cache is on because upstream's is: it changes what compiles (FACTS, repeat bounds over 128).
        self._mask_words = _words(vocabulary.vocab_size)
        self._compiler: Any = xgrammar.GrammarCompiler(
            vocabulary.xgrammar_info, max_threads=threads, cache_enabled=True, cache_limit_bytes=64 << 20
        )

    def warm(self) -> None:
        """Compile what nearly every schema holds, so that forked workers inherit it."""
        self._compiler.compile_json_schema(_ANY_OBJECT)

    def compile(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Compiled:
        """Compile one grammar.

        Raises
        ------
        BackendError
            xgrammar does not take it.
        """
        try:
            compiled = self._compile(kind, spec, any_whitespace=any_whitespace)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise BackendError(_one_line(error)) from error
        return _XGrammarCompiled(self._xgrammar, compiled, self._mask_words)

    def _compile(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Any:
        if kind in ("json", "json_object"):
            separators = None if any_whitespace else (",", ":")
            return self._compiler.compile_json_schema(
                spec or _ANY_OBJECT, any_whitespace=any_whitespace, separators=separators
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

    def __init__(self, xgrammar: Any, compiled: Any, mask_words: int) -> None:
        self.mask_words = mask_words
        self._xgrammar = xgrammar
        self._compiled = compiled

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

    def __init__(self, llguidance: Any, tokenizer: Any, text: str) -> None:
        self.mask_words = _words(tokenizer.vocab_size)
        self._llguidance = llguidance
        self._text = text
        self._prototype = llguidance.LLMatcher(tokenizer, text, log_level=0)

    def refusal(self) -> str:
        return _one_line(self._prototype.get_error()) if self._prototype.is_error() else ""

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


def is_lark(grammar: str) -> bool:
    """Tell Lark from EBNF as vLLM's grammar_is_likely_lark does: no rule is written with `::=`."""
    lines = (re.sub(r"(#|//).*$", "", line) for line in grammar.split("\n"))
    return not any("::=" in line for line in lines)


def choice_as_ebnf(choices: list[str]) -> str:
    """Write a choice as the EBNF that vLLM's choice_as_grammar makes of it."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, choice))}"' for choice in choices)


def _escaped(character: str) -> str:
    known = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    if character in known:
        return known[character]
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"\\u{ord(character):04x}"
    return character


def _one_line(error: object) -> str:
    """Return a library's message without its time and source line, as `[12:00:00] /project/x.cc:1:`."""
    text = re.sub(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ?", "", str(error))
    return " ".join(text.split())[:500] or type(error).__name__

"""xgrammar with one tokenizer: compiles just as vLLM 0.32 does (v1/structured_output/backend_xgrammar.py).

Equal calls make equal masks; the contract test compares them with vLLM's own class.
"""

import functools
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import xgrammar

from guided_contract.wire import Kind
from guided_grammar.backend import ANY_OBJECT, BackendError, Threads, one_line
from guided_grammar.masks import Bitmask
from guided_grammar.texts import choice_as_ebnf, is_lark, is_plain
from guided_grammar.walk import Walk
from guided_grammar.xgrammar.filler import XGrammarFiller
from guided_grammar.xgrammar.matcher import XGrammarMatcher
from guided_grammar.xgrammar.special import SpecialTokens
from guided_grammar.xgrammar.strings import PlainStrings, PlainTokens

# What a worker compiles within so much CPU time, and holds in so much memory, a rank compiles again: writing
# and loading its artefact takes 5 to 15 times as long.
_QUICK_S: Final = 0.02
_SMALL_BYTES: Final = 1 << 20
_CACHE_BYTES: Final = 64 << 20


class XGrammarBackend:
    """vLLM's XgrammarBackend without vLLM.

    Parameters
    ----------
    info
        The tokenizer, an xgrammar.TokenizerInfo.
    threads
        Of a compile, for which upstream takes 8 whatever the container's share of the machine is, and of a
        fill.

    Attributes
    ----------
    is_worn
        Its cache holds parts that took long: a grammar of these would seem quick, and is not for a rank.
    """

    def __init__(self, info: Any, threads: Threads) -> None:
        self.vocab_size = int(info.vocab_size)
        self.stop_tokens = frozenset(info.stop_token_ids)
        self.is_worn = False
        self._info = info
        self._threads = threads
        # Each made once, at the first use or before.
        self._compiler = functools.cache(lambda: _compiler(info, threads.compile))
        self._plain_tokens = functools.cache(lambda: PlainTokens(info))
        self._special = functools.cache(lambda: SpecialTokens.of(info))
        self._filler = functools.cache(lambda: XGrammarFiller(threads.fill))

    def compile(self, kind: Kind, spec: str) -> "CompiledByXGrammar":
        """Compile one grammar; see Backend."""
        begin_s = time.process_time()
        try:
            grammar = self._grammar(kind, spec)
            compiled = (
                self._whole(kind, spec) if grammar is None else self._compiler().compile_grammar(grammar)
            )
        except MemoryError:
            raise
        except Exception as error:  # whatever a library trips over in a client's text
            raise BackendError(one_line(error)) from error
        finally:
            is_quick = time.process_time() - begin_s < _QUICK_S
            self.is_worn |= not is_quick
        is_cheap = is_quick and compiled.memory_size_bytes < _SMALL_BYTES
        return CompiledByXGrammar(compiled, self.vocab_size, grammar if is_cheap else None)

    def draft(self, kind: Kind, spec: str) -> None:
        """Return None: it is the compile that tells how long it takes; see Backend."""

    def load(
        self,
        source: str | None,
        artifact: bytes | None,
        *,
        is_draft: bool = False,  # noqa: ARG002 - there is none
    ) -> "LoadedByXGrammar":
        """Load what a worker compiled; see Backend."""
        if source:
            compiled = self._compiler().compile_grammar(xgrammar.Grammar.deserialize_json(source))
        elif artifact is not None:
            compiled = xgrammar.CompiledGrammar.deserialize_json(artifact.decode(), self._info)
        else:
            raise BackendError("an xgrammar grammar needs its text, or an artefact and its hash")
        return LoadedByXGrammar(compiled, PlainStrings.of(compiled, self._plain_tokens()))

    def fill(self, walks: Sequence[Walk[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences; see Backend."""
        self._filler().fill(walks, bitmask)

    def tokens(self) -> Sequence[bytes]:
        """Return each token's bytes; see Backend."""
        return self._plain_tokens().texts

    def _grammar(self, kind: Kind, spec: str) -> Any | None:
        """Return the grammar that upstream's call compiles; None: of this one, only all at once."""
        grammar = xgrammar.Grammar
        if not is_plain(spec):
            return None
        if kind in ("json", "json_object"):
            return grammar.from_json_schema(spec or ANY_OBJECT)
        if kind == "regex":
            return grammar.from_regex(spec)
        if kind == "choice":
            return grammar.from_ebnf(choice_as_ebnf(json.loads(spec)))
        return grammar.from_ebnf(spec) if kind == "grammar" and not is_lark(spec) else None

    def _whole(self, kind: Kind, spec: str) -> Any:
        """Compile as upstream does: what is not plain, and what names the compiler's special tokens."""
        if kind in ("json", "json_object"):
            return self._compiler().compile_json_schema(spec)
        if kind == "regex":
            return self._compiler().compile_regex(spec)
        if kind == "choice":
            return self._compiler().compile_grammar(choice_as_ebnf(json.loads(spec)))
        if kind == "grammar":
            if is_lark(spec):
                return self._compiler().compile_lark(self._special().in_lark(spec))
            return self._compiler().compile_grammar(spec)
        return self._structural_tag(json.loads(spec))

    def _structural_tag(self, tag: Any) -> Any:
        if "structures" in tag:
            items = [
                xgrammar.StructuralTagItem(
                    begin=item["begin"], schema=json.dumps(item["schema"]), end=item["end"]
                )
                for item in tag["structures"]
            ]
            form = xgrammar.StructuralTag.from_legacy_structural_tag(items, tag["triggers"])
            tag = json.loads(form.model_dump_json(indent=None))
        grammar = self._special().in_tag(tag)
        if grammar is None:
            return self._compiler().compile_structural_tag(json.dumps(tag))
        # With a cache, xgrammar writes the grammar out and reads it again, and loses bytes that are no text.
        threads = self._threads.compile
        return xgrammar.GrammarCompiler(self._info, max_threads=threads, cache_enabled=False).compile_grammar(
            grammar
        )


class LoadedByXGrammar:
    """A compiled grammar, shared by all sequences of its key."""

    def __init__(self, compiled: Any, strings: PlainStrings | None = None) -> None:
        self.native = compiled
        self._strings = strings

    def matcher(self, stop_tokens: Sequence[int] | None = None) -> XGrammarMatcher:
        """Return a matcher at the grammar's start; see Loaded."""
        return XGrammarMatcher(self.native, stop_tokens, self._strings)


class CompiledByXGrammar(LoadedByXGrammar):
    """A grammar that a worker compiled, and where that took no time what it was compiled of."""

    backend = "xgrammar"

    def __init__(self, compiled: Any, vocab_size: int, grammar: Any | None) -> None:
        super().__init__(compiled)
        self.vocab_size = vocab_size
        self.memory_bytes = int(compiled.memory_size_bytes)
        self._grammar = grammar

    def source(self) -> str | None:
        """Return the grammar that a rank compiles again; see Compiled."""
        return None if self._grammar is None else str(self._grammar.serialize_json())

    def artifact(self) -> str:
        """Return the compiled grammar's JSON."""
        return str(self.native.serialize_json())


def _compiler(info: Any, threads: int) -> Any:
    """Return a compiler that has what nearly every grammar holds: a rank's as the worker's that measures."""
    # The cache is on because upstream's is: it changes what compiles (FACTS, repeat bounds over 128).
    compiler = xgrammar.GrammarCompiler(
        info, max_threads=threads, cache_enabled=True, cache_limit_bytes=_CACHE_BYTES
    )
    compiler.compile_json_schema(ANY_OBJECT)
    return compiler

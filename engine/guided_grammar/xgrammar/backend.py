"""xgrammar with one tokenizer: compiles just as vLLM 0.32 does (v1/structured_output/backend_xgrammar.py).

Equal calls make equal masks; the contract test compares them with vLLM's own class.
"""

import functools
import json
import re
import time
from collections.abc import Sequence
from typing import Any, Final

import xgrammar

from guided_contract.wire import Kind
from guided_grammar.backend import ANY_OBJECT, BackendError, Threads, one_line
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask
from guided_grammar.texts import choice_as_ebnf, new_form
from guided_grammar.xgrammar import classes
from guided_grammar.xgrammar.matcher import XGrammarFiller, XGrammarMatcher
from guided_grammar.xgrammar.special import SpecialTokens

_QUICK_S: Final = 0.2  # of CPU time: beyond, the cache holds parts that a rank has to make
# Begins the source of what is compiled without a cache. With one, xgrammar writes a grammar out and reads it
# again, and loses bytes that are no text; and escapes swallow letters that could be their digits: of "ß" and
# "e" it makes U+0DFE.
_UNCACHED: Final = "uncached:"
_MOST_BYTES: Final = 64 << 20  # of one compiled grammar, which each rank holds in the engine's container
# Neither plain text, nor an escape that stays one character or a class of letters and digits.
_ODD: Final = re.compile(r"[^\t\n\r -~]|\\(?![dDwWntr])[A-Za-z0-9]")
_CACHE_BYTES: Final = 64 << 20
_OF_SCHEMAS: Final = frozenset[Kind](["json", "structural_tag"])


class XGrammarBackend:
    """vLLM's XgrammarBackend without vLLM, with an xgrammar.TokenizerInfo.

    It `is_worn` once its cache holds parts that took long: a grammar of these would seem quick, and is not
    for a rank.
    """

    def __init__(self, info: Any, threads: Threads) -> None:
        self.vocab_size = int(info.vocab_size)
        self.stop_tokens = frozenset(info.stop_token_ids)
        self.is_worn = False
        self._info = info
        self._threads = threads
        # Each made once, at the first use or before.
        self._compiler = functools.cache(lambda: _compiler(info, threads.compile))
        self._tokens = functools.cache(lambda: list(info.decoded_vocab))
        self._special = functools.cache(lambda: SpecialTokens(info))
        self._filler = functools.cache(lambda: XGrammarFiller(threads.fill))

    def compile(self, kind: Kind, spec: str) -> "XGrammarGrammar":
        """Compile one grammar; see Backend."""
        begin_s = time.process_time()
        try:
            made = self.load(self._source(kind, spec))
        except MemoryError:
            raise
        except Exception as error:  # whatever a library trips over in a client's text
            raise BackendError(one_line(error)) from error
        finally:
            self.is_worn |= time.process_time() - begin_s > _QUICK_S
        if made.memory_bytes > _MOST_BYTES:
            held = made.memory_bytes >> 20
            raise BackendError(f"compiled it has {held} MiB; the limit is {_MOST_BYTES >> 20}")
        return made

    def load(self, source: str) -> "XGrammarGrammar":
        """Compile what a worker compiled; see Backend."""
        written = source.removeprefix(_UNCACHED)
        compiler = self._compiler()
        if written != source:
            threads = self._threads.compile
            compiler = xgrammar.GrammarCompiler(self._info, max_threads=threads, cache_enabled=False)
        grammar = xgrammar.Grammar.deserialize_json(written)
        return XGrammarGrammar(compiler.compile_grammar(grammar), source)

    def fill(self, batch: Sequence[GuidedRows[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences; see Backend."""
        self._filler().fill(batch, bitmask)

    def tokens(self) -> Sequence[bytes]:
        """Return each token's bytes; see Backend."""
        return self._tokens()

    def _source(self, kind: Kind, spec: str) -> str:
        """Return the grammar of upstream's call, written out."""
        marked = None
        if kind == "structural_tag":
            tag = new_form(json.loads(spec))
            marked = self._special().in_tag(tag)
            grammar = marked or xgrammar.Grammar.from_structural_tag(json.dumps(tag))
        else:
            grammar = _grammar(kind, spec)
        is_cached = marked is None and _ODD.search(spec) is None
        written = classes.of_text(grammar.serialize_json(), is_json=kind in _OF_SCHEMAS)
        return f"{'' if is_cached else _UNCACHED}{written}"


def _grammar(kind: Kind, spec: str) -> Any:
    grammar = xgrammar.Grammar
    if kind in ("json", "json_object"):
        return grammar.from_json_schema(spec or ANY_OBJECT)
    if kind == "regex":
        return grammar.from_regex(spec)
    if kind == "choice":
        return grammar.from_ebnf(choice_as_ebnf(json.loads(spec)))
    return grammar.from_ebnf(spec)


class XGrammarGrammar:
    """A compiled grammar, shared by all sequences of its key."""

    backend = "xgrammar"

    def __init__(self, compiled: Any, source: str) -> None:
        self.native = compiled
        self.vocab_size = int(compiled.tokenizer_info.vocab_size)
        self.memory_bytes = int(compiled.memory_size_bytes)
        self._source = source

    def matcher(self, stop_tokens: Sequence[int] | None = None) -> XGrammarMatcher:
        """Return a matcher at the grammar's start; see Loaded."""
        return XGrammarMatcher(self.native, stop_tokens)

    def source(self) -> str:
        """Return the grammar that a rank compiles again; see Compiled."""
        return self._source


def _compiler(info: Any, threads: int) -> Any:
    """Return a compiler that has what nearly every grammar holds: a rank's as the worker's that measures."""
    # The cache is on because upstream's is: it changes what compiles (FACTS, repeat bounds over 128).
    compiler = xgrammar.GrammarCompiler(
        info, max_threads=threads, cache_enabled=True, cache_limit_bytes=_CACHE_BYTES
    )
    # As the others are written: a class that differs finds its rule's place taken, and is compiled each time.
    written = classes.of_text(xgrammar.Grammar.from_json_schema(ANY_OBJECT).serialize_json(), is_json=True)
    compiler.compile_grammar(xgrammar.Grammar.deserialize_json(written))
    return compiler

"""Grammars that this rank has loaded: proven by the sidecar, shared by all sequences of a key."""

import functools
import hashlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import llguidance
import xgrammar

from guided_contract.wire import Backend, Load, Loaded, Unload
from guided_engine.ranks.counted import CountedGrammar, CountedText
from guided_engine.ranks.counted_tokens import TokenTable
from guided_engine.ranks.matchers import GuidanceMatcher, Matcher, XGrammarMatcher
from guided_engine.ranks.strings import PlainStrings, PlainTokens

# A service that died cannot unload what it loaded, and requests that it admitted may still be waiting.
ORPHAN_S: Final = 900.0
_log = logging.getLogger("guided_engine")
_ANY_OBJECT: Final = '{"type": "object"}'
_CACHE_BYTES: Final = 64 << 20  # as in the sidecar


class LoadError(Exception):
    """A grammar cannot be loaded; the message names file and fault, never grammar text."""


class Vocabulary(Protocol):
    """The engine's tokenizer as the two libraries want it, made exactly as upstream makes it."""

    def tokenizer_info(self) -> Any:
        """Return xgrammar's TokenizerInfo."""

    def guidance_tokenizer(self) -> Any:
        """Return llguidance's LLTokenizer."""


@dataclass(slots=True)
class _Prototype:
    make: Callable[[Sequence[int] | None], Matcher]
    used_at: float
    is_orphan: bool = False


class Prototypes:
    """Loads by key off the hot thread, and makes a matcher per sequence on it.

    Parameters
    ----------
    folder
        Where the sidecar puts compiled artefacts.
    vocabulary
        The engine's tokenizer; asked for a library's form of it at that library's first grammar.
    """

    def __init__(
        self, folder: Path, vocabulary: Vocabulary, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._vocabulary = vocabulary
        self._clock = clock
        self._lock = threading.Lock()
        self._by_key: dict[str, _Prototype] = {}
        # Made once, at the first use or before.
        self._plain_tokens = functools.cache(lambda: PlainTokens(vocabulary.tokenizer_info()))
        self._compiler = functools.cache(lambda: _compiler(vocabulary.tokenizer_info()))
        self._table = functools.cache(self._made_table)

    def warm(self) -> None:
        """Make what the first grammars would wait for, a second for 131,072 tokens; before there are steps.

        What a library makes of a tokenizer that it cannot take is said again to the first grammar.
        """
        first: tuple[Callable[[], object], ...] = (
            self._compiler,
            self._plain_tokens,
            lambda: self._table("xgrammar"),
            lambda: self._table("guidance"),
            self._first_guidance,
        )
        for make in first:
            try:
                make()
            except Exception as error:  # noqa: BLE001 - whatever a library raises; the other one may do
                _log.warning("guidedmodel: not ready for a first grammar: %s", error)

    def load(self, message: Load) -> Loaded:
        """Load a grammar and answer; loading what is loaded is cheap. Never raises."""
        start_ns = time.time_ns()
        try:
            self._ensure(message)
            error = ""
        except Exception as fault:  # noqa: BLE001 - native code raises what it likes; the answer carries it
            error = f"{type(fault).__name__}: {fault}"
        return Loaded(key=message.key, error=error, start_ns=start_ns, end_ns=time.time_ns())

    def unload(self, message: Unload) -> None:
        """Forget a grammar. Sequences that use it keep what they need."""
        with self._lock:
            self._by_key.pop(message.key, None)

    def orphan(self) -> None:
        """Note that the service which loaded these has gone: for a while they stay for what it admitted."""
        with self._lock:
            for prototype in self._by_key.values():
                prototype.is_orphan = True
                prototype.used_at = self._clock()

    def matcher(self, key: str, stop_tokens: Sequence[int] | None) -> Matcher:
        """Return a new matcher of a loaded grammar.

        Parameters
        ----------
        stop_tokens
            The request's own stop tokens and end of sequence, as vLLM gives them to xgrammar.

        Raises
        ------
        LoadError
            The key is not loaded here.
        """
        with self._lock:
            prototype = self._by_key.get(key)
        if prototype is None:
            raise LoadError("the grammar is not loaded on this rank")
        prototype.used_at = self._clock()
        return prototype.make(stop_tokens)

    def __len__(self) -> int:
        return len(self._by_key)

    def _ensure(self, message: Load) -> None:
        self._drop_old_orphans()
        with self._lock:
            known = self._by_key.get(message.key)
            if known is not None:
                known.is_orphan = False
                return
        make = self._load_xgrammar(message) if message.backend == "xgrammar" else self._load_guidance(message)
        if message.positions:
            make = _counting(make, CountedGrammar(message.positions, self._table(message.backend)))
        prototype = _Prototype(make, self._clock())
        with self._lock:
            self._by_key[message.key] = prototype

    def _made_table(self, backend: Backend) -> TokenTable:
        if backend == "xgrammar":
            return TokenTable(self._plain_tokens().texts, self._vocabulary.tokenizer_info().vocab_size)
        tokenizer = self._vocabulary.guidance_tokenizer()
        tokens = [tokenizer.decode_bytes([token]) for token in range(tokenizer.vocab_size)]
        return TokenTable(tokens, tokenizer.vocab_size)

    def _first_guidance(self) -> None:
        spec = str(llguidance.LLMatcher.grammar_from_json_schema(_ANY_OBJECT))
        self._load_guidance(Load(key="", backend="guidance", spec=spec))(None)

    def _drop_old_orphans(self) -> None:
        oldest = self._clock() - ORPHAN_S
        with self._lock:
            for key in [k for k, p in self._by_key.items() if p.is_orphan and p.used_at < oldest]:
                del self._by_key[key]

    def _load_xgrammar(self, message: Load) -> Callable[[Sequence[int] | None], Matcher]:
        compiled = self._compiled(message)
        strings = PlainStrings.of(compiled, self._plain_tokens())
        return lambda stop_tokens: XGrammarMatcher(compiled, stop_tokens, strings)

    def _compiled(self, message: Load) -> Any:
        if message.spec:
            return self._compiler().compile_grammar(xgrammar.Grammar.deserialize_json(message.spec))
        if not message.artifact or not message.sha256:
            raise LoadError("an xgrammar grammar needs its text, or an artefact and its hash")
        content = read_artifact(self._folder, message.artifact, message.sha256)
        return xgrammar.CompiledGrammar.deserialize_json(content.decode(), self._vocabulary.tokenizer_info())

    def _load_guidance(self, message: Load) -> Callable[[Sequence[int] | None], Matcher]:
        if not message.spec:
            raise LoadError("an llguidance grammar needs its text")
        tokenizer = self._vocabulary.guidance_tokenizer()
        prototype = llguidance.LLMatcher(tokenizer, message.spec, log_level=0)
        if prototype.is_error():
            raise LoadError("llguidance refuses the grammar")
        eos_token = tokenizer.eos_token
        return lambda _stop_tokens: GuidanceMatcher(prototype, eos_token)


def _counting(
    make: Callable[[Sequence[int] | None], Matcher], grammar: CountedGrammar
) -> Callable[[Sequence[int] | None], Matcher]:
    def make_counting(stop_tokens: Sequence[int] | None) -> Matcher:
        matcher = make(stop_tokens)
        matcher.counted = CountedText(grammar)
        return matcher

    return make_counting


def _compiler(info: Any) -> Any:
    """Return a compiler that has what nearly every grammar holds, as the sidecar's has that measured them."""
    compiler = xgrammar.GrammarCompiler(
        info, max_threads=1, cache_enabled=True, cache_limit_bytes=_CACHE_BYTES
    )
    compiler.compile_json_schema(_ANY_OBJECT)
    return compiler


def read_artifact(folder: Path, name: str, sha256: str) -> bytes:
    """Return a compiled artefact's content after checking whose file it is and what it holds.

    Raises
    ------
    LoadError
        The name leaves the folder, the file is no plain file or another user's, or its hash differs.
    """
    if Path(name).name != name or name in {"", ".", ".."}:
        raise LoadError(f"{name!r} is not a plain file name")
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LoadError(f"{name}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise LoadError(f"{name} is not a plain file")
        if about.st_uid not in {os.geteuid(), 0}:
            raise LoadError(f"{name} belongs to user {about.st_uid}")
        content = file.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise LoadError(f"{name} does not have the announced content")
    return content

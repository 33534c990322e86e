"""Grammars that this rank has loaded: compiled by the sidecar, shared by all sequences of a key."""

import functools
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guided_contract.choices import MOST
from guided_contract.wire import Backend, Load, Loaded, Unload
from guided_engine.ranks.length_masks import CountedGrammar
from guided_engine.ranks.token_lengths import TokenTable
from guided_engine.ranks.unique_masks import ItemTable, UniqueRule
from guided_engine.ranks.whitespace_masks import BoundedSpace, BoundedSpaceInTags, SpaceTable
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import Loaded as LoadedGrammar
from guided_grammar.backend import warm
from guided_grammar.counted_text import CountedText, Rule
from guided_grammar.matching import Matcher

# A service that died cannot unload what it loaded, and requests that it admitted may still be waiting.
ORPHAN_S: Final = 900.0
_MOST_TABLES: Final = 16
_log = logging.getLogger("guided_engine")


class LoadError(Exception):
    """A grammar cannot be loaded; the message names file and fault, never grammar text."""


@dataclass(slots=True)
class _Entry:
    message: Load
    loaded: LoadedGrammar
    counted: list[Rule]
    used_at: float
    is_orphan: bool = False


class LoadedGrammars:
    """Loads by key off the hot thread, and makes a matcher per sequence on it.

    The sidecar puts compiled artefacts into `folder`; `backends` have the engine's tokenizer.
    """

    def __init__(
        self,
        folder: Path,
        backends: Mapping[Backend, GrammarBackend],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._backends = backends
        self._clock = clock
        self._lock = threading.Lock()
        self._by_key: dict[str, _Entry] = {}
        # Each once, at the first use or before; of bounds of white space the latest few for each library.
        self._table = functools.lru_cache(_MOST_TABLES)(self._made_table)

    def warm(self) -> None:
        """Make what the first grammars would wait for, a second for 131,072 tokens; before there are steps.

        What a library makes of a tokenizer that it cannot take is said again to the first grammar.
        """
        for name in self._backends:
            try:
                warm(self._backends[name])
                self._table(TokenTable, name)
                self._table(ItemTable, name)
                for most in MOST.values():
                    if most is not None:
                        self._table(SpaceTable, name, most)
            except Exception as error:  # noqa: BLE001 - whatever a library raises; the other one may do
                _log.warning("guidedmodel: %s is not ready for a first grammar: %s", name, error)

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
            for entry in self._by_key.values():
                entry.is_orphan = True
                entry.used_at = self._clock()

    def matcher(self, key: str, stop_tokens: Sequence[int] | None) -> Matcher:
        """Return a new matcher of a loaded grammar, with the stop tokens that vLLM gives to xgrammar.

        Raises LoadError if the key is not loaded here.
        """
        with self._lock:
            entry = self._by_key.get(key)
        if entry is None:
            raise LoadError("the grammar is not loaded on this rank")
        entry.used_at = self._clock()
        matcher = entry.loaded.matcher(stop_tokens)
        if entry.counted:
            matcher.counted = CountedText(*entry.counted)
        return matcher

    def text(self, name: Backend, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens, as a library reads them."""
        texts = self._backends[name].tokens()
        return b"".join(texts[token] for token in tokens if 0 <= token < len(texts))

    def __len__(self) -> int:
        return len(self._by_key)

    def _ensure(self, message: Load) -> None:
        self._drop_old_orphans()
        with self._lock:
            known = self._by_key.get(message.key)
            if known is not None and known.message == message:
                known.is_orphan = False
                return
        content = None
        if message.artifact and message.sha256 and not message.spec:
            content = read_artifact(self._folder, message.artifact, message.sha256)
        loaded = self._backends[message.backend].load(message.spec, content)
        entry = _Entry(message, loaded, self._rules(message), self._clock())
        with self._lock:
            self._by_key[message.key] = entry

    def _rules(self, message: Load) -> list[Rule]:
        """Return what holds beside the grammar."""
        found: list[Rule] = []
        if message.whitespace is not None:
            space = BoundedSpaceInTags if message.is_tagged else BoundedSpace
            found.append(space(self._table(SpaceTable, message.backend, message.whitespace)))
        if any(position.minimum or position.maximum is not None for position in message.positions):
            found.append(CountedGrammar(message.positions, self._table(TokenTable, message.backend)))
        if any(position.unique_items for position in message.positions):
            found.append(UniqueRule(message.positions, self._table(ItemTable, message.backend)))
        return found

    def _made_table(self, kind: Callable[..., Any], backend: Backend, *bounds: int) -> Any:
        library = self._backends[backend]
        return kind(library.tokens(), library.vocab_size, *bounds)

    def _drop_old_orphans(self) -> None:
        oldest = self._clock() - ORPHAN_S
        with self._lock:
            for key in [k for k, p in self._by_key.items() if p.is_orphan and p.used_at < oldest]:
                del self._by_key[key]


def read_artifact(folder: Path, name: str, sha256: str) -> bytes:
    """Return a compiled artefact's content. Raises LoadError unless it is there and has that hash."""
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise LoadError(f"{name}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise LoadError(f"{name} does not have the announced content")
    return content

"""Grammars that this rank has loaded: compiled by the sidecar, shared by all sequences of a key."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from guided_contract.wire import Backend, Load, Loaded, Unload
from guided_engine.matchers.length_masks import CountedGrammar
from guided_engine.matchers.token_table import TokenTable
from guided_engine.matchers.unique_masks import ItemTable, UniqueRule
from guided_engine.matchers.whitespace_masks import BoundedSpace, BoundedSpaceInTags, SpaceTable
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import Loaded as LoadedGrammar
from guided_grammar.counted_text import CountedText, Rule
from guided_grammar.matching import Matcher

_MOST_TABLES: Final = 16


class LoadError(Exception):
    """A grammar is not loaded here; the message never has grammar text."""


class _Entry(NamedTuple):
    message: Load
    loaded: LoadedGrammar
    counted: list[Rule]


class LoadedGrammars:
    """Loads by key off the hot thread, and makes a matcher per sequence on it.

    `backends` have the engine's tokenizer.
    """

    def __init__(self, backends: Mapping[Backend, GrammarBackend]) -> None:
        self._backends = backends
        self._entries: dict[str, _Entry] = {}
        # Each once, at the first use or before; of bounds of white space the latest few for each library.
        self._table = functools.lru_cache(_MOST_TABLES)(self._made_table)

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
        self._entries.pop(message.key, None)

    def matcher(self, key: str, stop_tokens: Sequence[int] | None) -> Matcher:
        """Return a new matcher of a loaded grammar, with the stop tokens that vLLM gives to xgrammar.

        Raises LoadError if the key is not loaded here.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise LoadError("the grammar is not loaded on this rank")
        matcher = entry.loaded.matcher(stop_tokens)
        if entry.counted:
            matcher.counted = CountedText(*entry.counted)
        return matcher

    def __len__(self) -> int:
        return len(self._entries)

    def _ensure(self, message: Load) -> None:
        known = self._entries.get(message.key)
        if known is not None and known.message == message:
            return
        loaded = self._backends[message.backend].load(message.spec)
        self._entries[message.key] = _Entry(message, loaded, self._rules(message))

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

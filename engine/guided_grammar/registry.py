"""The libraries by name, as guided_contract.backends lists them; imported and opened at their first use."""

import contextlib
import importlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from guided_contract import backends
from guided_grammar.backend import Backend, BackendError, Library, Threads, one_line


def library(name: backends.Backend) -> Library:
    """Return the library of that name; KeyError where there is none."""
    found: Library = importlib.import_module(backends.entry(name).module).LIBRARY
    return found


class Vocabulary(Protocol):
    """A tokenizer in each library's own form."""

    def native(self, name: backends.Backend) -> Any:
        """Return what `Library.read` of that name makes of it; raises what that raises."""


class Tokenizer:
    """A tokenizer of transformers' in each library's own form; `vocab_size` is as in `Library.read`."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._forms: dict[str, Any] = {}

    def native(self, name: backends.Backend) -> Any:
        """Return a library's form of it, made at the first call; see Vocabulary."""
        if name not in self._forms:
            self._forms[name] = library(name).read(self._tokenizer, self._vocab_size)
        return self._forms[name]


def fingerprints(vocabulary: Vocabulary) -> dict[backends.Backend, str]:
    """Return the fingerprint of each library's form; one that does not take the tokenizer has none."""
    found: dict[backends.Backend, str] = {}
    for name in backends.NAMES.values():
        # Whatever a library raises: it is said again to the first grammar that wants it.
        with contextlib.suppress(Exception):
            found[name] = library(name).fingerprint(vocabulary.native(name))
    return found


class Backends(Mapping[str, Backend]):
    """All libraries with one tokenizer; to ask for one that does not take it raises BackendError."""

    def __init__(self, vocabulary: Vocabulary, threads: Threads | None = None) -> None:
        self._vocabulary = vocabulary
        self._threads = threads or Threads()
        self._opened: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: backends.Backend) -> Backend:
        with self._lock:
            if name not in self._opened:
                try:
                    self._opened[name] = library(name).open(self._vocabulary.native(name), self._threads)
                except BackendError:
                    raise
                except Exception as error:
                    raise BackendError(one_line(str(error) or type(error).__name__)) from error
            return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(backends.NAMES.values())

    def __len__(self) -> int:
        return len(backends.NAMES)

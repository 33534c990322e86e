"""The libraries by name, as guided_contract.backends lists them; imported and opened at their first use."""

import contextlib
import importlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from guided_contract import backends
from guided_grammar.backend import Backend, BackendError, Library, Threads, one_line


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Take whatever a library raises for its word that it does not take the tokenizer."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(one_line(str(error) or type(error).__name__)) from error


def library(name: backends.Backend) -> Library:
    """Return the library of that name; KeyError where there is none."""
    found: Library = importlib.import_module(backends.entry(name).module).LIBRARY
    return found


class Vocabulary(Protocol):
    """A tokenizer in each library's own form."""

    def native(self, name: backends.Backend) -> Any:
        """Return what `Library.read` of that name makes of it.

        Raises
        ------
        guided_grammar.backend.BackendError
            The library does not take it.
        """


class Tokenizer:
    """A tokenizer of transformers' in each library's own form, made once, by whoever needs it first.

    Parameters
    ----------
    tokenizer, vocab_size
        As in `Library.read`.
    """

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._forms: dict[str, Any] = {}
        self._lock = threading.Lock()

    def native(self, name: backends.Backend) -> Any:
        """Return a library's form of it; see Vocabulary."""
        with self._lock:
            if name not in self._forms:
                with _refusing():
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
    """All libraries with one tokenizer; one that does not take it raises BackendError when it is asked for.

    Parameters
    ----------
    vocabulary
        The tokenizer.
    threads
        Those of this process.
    """

    def __init__(self, vocabulary: Vocabulary, threads: Threads | None = None) -> None:
        self._vocabulary = vocabulary
        self._threads = threads or Threads()
        self._opened: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: backends.Backend) -> Backend:
        with self._lock:
            if name not in self._opened:
                with _refusing():
                    self._opened[name] = library(name).open(self._vocabulary.native(name), self._threads)
            return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(backends.NAMES.values())

    def __len__(self) -> int:
        return len(backends.NAMES)

"""What a grammar library gives: to a worker compiled grammars, to a rank matchers and the masks of a step.

    Library                     one for each; light to import, without state
      read, fingerprint, open, lacks
        |
    Backend                     a library with one tokenizer, in one process
      compile, load, fill, tokens
        |            |
    Compiled       Loaded       a grammar, in a worker and on a rank; a Compiled is a Loaded
        |            |
      matching.Matcher          one sequence's state

tests/support/fake_backend.py is one without a library.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from guided_contract.wire import Kind
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher

ANY_OBJECT: Final = '{"type": "object"}'


class BackendError(Exception):
    """A backend does not take a grammar or a tokenizer; the message is the library's own, on one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Threads:
    """Number of threads for one compile, and for one fill."""

    compile: int = 1
    fill: int = 1


class Loaded(Protocol):
    """A grammar whose sequences can be followed."""

    def matcher(self, stop_tokens: Sequence[int] | None = None) -> Matcher:
        """Return a matcher at the grammar's start.

        `stop_tokens` are the request's own; without them, or where a library knows no others, the
        tokenizer's end it.
        """


class Compiled(Loaded, Protocol):
    """A grammar as a worker has compiled it, ready to be walked and handed to the ranks."""

    backend: str
    vocab_size: int  # tokens that a mask row of it has
    memory_bytes: int  # what a rank holds of it, where that can be told, else 0

    def source(self) -> str:
        """Return what a rank compiles it of again, in the library's own form."""


class Backend(Protocol):
    """A library with one tokenizer.

    Attributes
    ----------
    vocab_size
        Tokens that a mask row of it has, which may be more than the model's, or fewer.
    stop_tokens
        What ends a text.
    is_worn
        What it has compiled so far makes later grammars seem quicker than they are for a rank.
    """

    vocab_size: int
    stop_tokens: frozenset[int]
    is_worn: bool

    def compile(self, kind: Kind, spec: str) -> Compiled:
        """Compile one grammar, as upstream does by default: JSON may have any white space between tokens.

        `kind` and `spec` are as in `wire.Prepare`. Raises BackendError if the library does not take it.
        """

    def load(self, source: str) -> Loaded:
        """Compile again what a worker compiled; raises BackendError if the library does not take it."""

    def fill(self, batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences of this backend that are not terminated; raises what the library raises.

        `bitmask` is [rows, ceil(vocab_size / 32)] int32; what it held before may be anything.
        """

    def tokens(self) -> Sequence[bytes]:
        """Return each token's bytes as the library reads them, empty for those that are no text."""


class Unsupported(NamedTuple):
    """What a library does not enforce: a keyword's JSONPath (None: it is no schema), and why in words."""

    path: str | None
    reason: str


class Library(Protocol):
    """A grammar library.

    Attributes
    ----------
    compares_spellings
        Whether a property's name that is spelt with escapes is another name to it.
    first_for
        The kinds of grammar for which it is asked first, where several libraries enforce one.
    counts_minimum_alone
        Whether a string's minLength without maxLength costs less where ranks count it than compiled.
    """

    compares_spellings: bool
    first_for: frozenset[Kind]
    counts_minimum_alone: bool

    def read(self, tokenizer: Any, vocab_size: int) -> Any:
        """Return the library's own form of a tokenizer of transformers'.

        `vocab_size` is the model's: the width of its logits, padding included. Raises BackendError if the
        library does not take it.
        """

    def fingerprint(self, native: Any) -> str:
        """Return a text that two tokenizers in the library's own form share if they give the same masks."""

    def open(self, native: Any, threads: Threads) -> Backend:
        """Return a backend; `native` is the tokenizer as `read` returned it."""

    def lacks(self, kind: Kind, value: Any) -> Unsupported | None:
        """Return the first thing in a grammar that the library takes and does not enforce, or refuses late.

        `value`: of json and structural tags the text parsed, else the text. A tag's schemas are asked for as
        json.
        """


def one_line(error: object) -> str:
    """Return a library's message without its time and source line, as `[12:00:00] /project/x.cc:1:`.

    What it trips over says nothing to who wrote the grammar: TypeError and its like are Python's words.
    """
    said = str(error) if isinstance(error, str | RuntimeError | ValueError) else ""
    line = " ".join(re.sub(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ?", "", said).split())
    return (line if len(line) <= 500 else f"{line[:250]}…{line[-249:]}") or "it cannot be read"

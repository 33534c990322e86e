"""What a library says: while it compiles, that it ignores a part of a grammar; of one that it refuses, why.

C++ writes the first to standard error. A worker's is a file in memory, which its last words are read from,
too; what was said there of a grammar is taken out again, so that the file stays small.

Of a refusal whoever wrote the grammar reads `plain` words: a library's may name its own parts, count lines in
a text that was written for it, or quote the whole grammar before it comes to the reason.
"""

import contextlib
import fcntl
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from typing import Final

from guided_contract.wire import Kind
from guided_grammar.backend import Backend, BackendError, Compiled, one_line

_STDERR: Final = 2
_MOST_BYTES: Final = 4096  # that are read: a library may say the same of each place in a grammar
_MOST_CHARACTERS: Final = 200
# Of what a later version of a library will do, not of the grammar.
_OF_LATER: Final = (DeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
_BEGIN: Final = 60  # characters of a longer message; its end tells more
_LOOKAROUND: Final = "lookaround, word boundaries and anchors of lines are not supported"
MANY: Final = (
    "too many alternatives are possible at one place of a text: require the properties that are always "
    "present, or split the schema"
)
_PLAIN: Final = tuple(
    (re.compile(written, re.DOTALL), meant)
    for written, meant in (
        (r"lookarounds not supported yet; \w+ in regex.*", _LOOKAROUND),
        (r"look-around, including look-ahead and look-behind, is not supported", _LOOKAROUND),
        (r"Failed to generate regex for integer range:.*", "no integer is within its bounds"),
        (r"lexer error: too many expressions constructed", "it has too many repetitions"),
        (r"Unable to determine if regex is empty: .*", "its patterns and lengths are too large together"),
        (r"too many digits: \d+", "too many digits"),
        (r"regex parse error: .*\^ error: ", ""),
        (r"(?:Parser Error: )?(?:Current row has \d+ items|Too many items).*", MANY),
        (
            r"panic: assertion failed: grammar\.symbols\.len.*",
            "it has more than 65,000 parts: lower maxItems",
        ),
        (r"panic: (.{0,80}).*", r"\1"),
        (r"Invalid structural tag error: ", ""),
        (r"Warning: ", ""),
        (r"Token string resolution requires tokenizer_info", "no special token has this name"),
        (r"(?:not enough|too many) values to unpack.*", "each of the rules is a list of a text and a format"),
        (r"Check failed: \(.*\) is false: ", ""),
        (r"; following special tokens are available:.*", ""),
        (r" \d+ \| .*", ""),  # a line of a text, which may be one that was written for the library
        (r"^at 1\(\d+\): invalid regex .* error: ", ""),
        (r"^at 1\(\d+\): invalid regex .* \(in regex\): ", ""),
        (r"(\S{20})\S{20,}(\S{10})", r"\1…\2"),
        (r"\b(?:at )?(\d+)\((\d+)\): ", r"line \1, column \2: "),
    )
)


def compiled(backend: Backend, kind: Kind, text: str) -> Compiled:
    """Compile a grammar; BackendError also where the library says that it ignores something."""
    with listening() as said:
        made = backend.compile(kind, text)
    if said:
        raise BackendError(f"it is not supported: {said[0]}")
    return made


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list, in which is after the block what was said in it, the first thing first.

    Empty: nothing was. Where the block raises, it stays empty. For a process with one thread of Python's.
    """
    said: list[str] = []
    with _file(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sys.stderr.flush()
        begin = os.fstat(_STDERR).st_size
        yield said
        sys.stderr.flush()
        if os.fstat(_STDERR).st_size > begin:
            written = os.pread(_STDERR, _MOST_BYTES, begin).decode(errors="replace")
            said += [one_line(line) for line in written.splitlines() if line.strip()]
            os.ftruncate(_STDERR, begin)
            os.lseek(_STDERR, begin, os.SEEK_SET)
    said += [one_line(str(one.message)) for one in warned if not issubclass(one.category, _OF_LATER)]


@contextlib.contextmanager
def _file() -> Iterator[None]:
    """Have standard error be a file in the block; in a worker it is one."""
    is_read = fcntl.fcntl(_STDERR, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    if is_read and stat.S_ISREG(os.fstat(_STDERR).st_mode):
        yield
        return
    kept, memory = os.dup(_STDERR), os.memfd_create("stderr", os.MFD_CLOEXEC)
    try:
        os.dup2(memory, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(memory)


def plain(said: str) -> str:
    """Return a library's words without what says nothing to others, on at most 200 characters."""
    for written, meant in _PLAIN:
        said = written.sub(meant, said)
    if len(said) <= _MOST_CHARACTERS:
        return said
    return f"{said[:_BEGIN]}…{said[_BEGIN - _MOST_CHARACTERS :]}"

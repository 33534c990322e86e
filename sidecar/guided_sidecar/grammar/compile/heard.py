"""What a library says while it compiles: that it ignores a part of a grammar, which nobody else would read.

C++ writes it to standard error. A worker's is a file in memory, which its last words are read from, too; what
was said there of a grammar is taken out again, so that the file stays small.
"""

import contextlib
import fcntl
import os
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


def compiled(backend: Backend, kind: Kind, text: str) -> Compiled:
    """Compile a grammar; BackendError also where the library says that it ignores something."""
    with listening() as said:
        made = backend.compile(kind, text)
    if said:
        raise BackendError(f"it is not supported: {said[0]}")
    return made


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list, in which is after the block what was said in it, the first thing first and shortened.

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
            said += [shortened(line) for line in written.splitlines() if line.strip()]
            os.ftruncate(_STDERR, begin)
            os.lseek(_STDERR, begin, os.SEEK_SET)
    said += [shortened(str(one.message)) for one in warned if not issubclass(one.category, _OF_LATER)]


def shortened(text: str) -> str:
    """Return a library's words on one line, without what a client's own text may make of them."""
    line = one_line(text).removeprefix("Warning: ")
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"


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

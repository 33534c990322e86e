"""Why a rank did not start, for the end of the container's log.

vLLM's API server ends with a traceback that says that its engine core failed, and a kubelet keeps 2 KiB of a
log's end: what failed would be lost to the pod's status.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# With what the launcher puts before them they fit the 450 that the operator keeps of a line.
_MOST_CHARS: Final = 350
_CUT: Final = " ... "


@contextlib.contextmanager
def noted(file: Path) -> Iterator[None]:
    """Keep what is raised here, as the first rank's to do so."""
    try:
        yield
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        with contextlib.suppress(OSError), file.open("x", encoding="utf-8", errors="replace") as kept:
            kept.write(_shortened(words))
        raise


def of(file: Path) -> str:
    """Return what was kept, "" if nothing was."""
    try:
        with file.open(encoding="utf-8", errors="replace") as kept:
            return kept.read(_MOST_CHARS)
    except OSError:
        return ""


def _shortened(words: str) -> str:
    """Leave out the middle: the beginning says what it is, the end often what to do."""
    if len(words) <= _MOST_CHARS:
        return words
    half = (_MOST_CHARS - len(_CUT)) // 2
    return f"{words[:half]}{_CUT}{words[-half:]}"

"""The way into `guidedmodel`: parses, and hands over to whoever carries out the command.

Exit status: 0 done, or ready; 1 the pod failed, or a model is not ready, or the output cannot be written;
2 wrong arguments or manifest, or the cluster does not answer.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

from guided_operator.cli import arguments, completion


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` None: the process's own arguments. Return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [completion.COMMAND]:
        return _written(completion.answer, words[1:])
    return _written(arguments.run, words)


def complete_for_kubectl() -> int:
    """Answer what `kubectl gm` is to be completed with: kubectl runs `kubectl_complete-gm` with its words."""
    return _written(completion.answer, sys.argv[1:])


def _written(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Run a command, and see to what it prints: 1 if that cannot be written."""
    _take_everything()
    try:
        status = command(words)
        sys.stdout.flush()
    except OSError as error:
        # Of a reader that has seen enough there is nothing to tell.
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{arguments.program()}: {error}\n")
        _give_up_what_is_unwritten()
        return 1
    return status


def _take_everything() -> None:
    """Have `?` written for what the locale cannot write, and nothing where a stream is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _give_up_what_is_unwritten() -> None:
    """Keep the interpreter, which writes it at its end, from failing once more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

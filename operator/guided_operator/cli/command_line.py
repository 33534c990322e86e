"""The way into `guidedmodel`: parses, and hands over to whoever carries out the command.

Exit status: 0 done, or ready; 1 the pod failed, or a model is not ready; 2 wrong arguments or manifest, or
the cluster does not answer.
"""

import sys
from collections.abc import Sequence

from guided_operator.cli import arguments, completion


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` None: the process's own arguments. Return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [completion.COMMAND]:
        return completion.answer(words[1:])
    return arguments.run(words)


def complete_for_kubectl() -> int:
    """Answer what `kubectl gm` is to be completed with: kubectl runs `kubectl_complete-gm` with its words."""
    return completion.answer(sys.argv[1:])

"""A logits processor that asks a process of its own: a scorer that is slow, and may die or hang.

`prepare` waits for an answer until a deadline. A helper that misses it or dies is replaced, and the sequences
that it served end with code sequence_processor_failed, as do those that begin before the new one is ready.
Waiting for it is no CPU time of the rank's.
"""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from guided_engine.processors.interface import (
    Context,
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)

START_S = 60.0  # how long the engine's start waits for the first helper
MOST_BYTES = 1 << 14  # of a text's end that the helper gets: far less than the socket holds
STOP = 100.0  # what stop tokens gain at the highest score


def serve(rank: socket.socket) -> None:
    """Be the helper until the rank is over: however that ends, it closes the socket."""
    rank.send(b"ready")
    while text := rank.recv(MOST_BYTES):
        rank.send(str(min(1.0, text.count(b"!") / 3)).encode())  # the slow scorer, alike on all ranks


class Helper:
    """One process; once it has failed it is dead."""

    def __init__(self) -> None:
        # Packets: no half of an answer is read. Not multiprocessing: a vLLM worker may have no such children.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._is_ready = False

    def is_ready(self, wait_s: float = 0) -> bool:
        """Return whether it can be asked, once it has had some time for that."""
        if not self._is_ready:
            self._socket.settimeout(wait_s)
            with contextlib.suppress(OSError):
                self._is_ready = self._socket.recv(16) == b"ready"
        return self._is_ready

    def ask(self, text: bytes, deadline_s: float) -> float:
        """Return the score of a text, or raise OSError by the deadline."""
        until = time.monotonic() + deadline_s
        self._socket.settimeout(deadline_s)
        self._socket.send(text[-MOST_BYTES:])
        self._socket.settimeout(max(0.001, until - time.monotonic()))
        if answer := self._socket.recv(16):
            return float(answer)
        raise ConnectionResetError("the scorer has died")

    def kill(self) -> None:
        """End it without waiting; it may be stopped."""
        self._socket.close()
        self.process.kill()


class ScorerParams(Params, frozen=True):
    deadline_ms: Annotated[int, Meta(ge=1, le=10_000)] = 200


class Scorer(ProcessorFactory[ScorerParams]):
    """Favours the end of a text the more, the higher the helper scores it."""

    Params = ScorerParams
    supports_speculation = False  # one question in a step, not one for each draft

    def __init__(self, params: ScorerParams, context: Context) -> None:
        super().__init__(params, context)
        self.helper = Helper()
        self._killed: list[subprocess.Popen[bytes]] = []
        if not self.helper.is_ready(START_S):
            self.close()
            raise RuntimeError("the scorer did not start")

    def create(self, sequence: SequenceInfo[ScorerParams]) -> SequenceProcessor:
        if self.helper.process.poll() is not None:
            self._replace()
        if not self.helper.is_ready():
            raise RuntimeError("the scorer is starting")
        return ScoredText(self, sequence)

    def ask(self, helper: Helper, text: bytes) -> float:
        if helper is not self.helper:
            raise RuntimeError("the scorer of this sequence has been replaced")
        try:
            return helper.ask(text, self.params.deadline_ms / 1000)
        except OSError:
            self._replace()
            raise

    def close(self) -> None:
        self.helper.kill()
        for process in (*self._killed, self.helper.process):
            process.wait()

    def _replace(self) -> None:
        self.helper.kill()
        self._killed = [one for one in (*self._killed, self.helper.process) if one.poll() is None]
        self.helper = Helper()


class ScoredText(SequenceProcessor):
    def __init__(self, scorer: Scorer, sequence: SequenceInfo[ScorerParams]) -> None:
        self._scorer, self._helper = scorer, scorer.helper
        self._stop_tokens = sorted(sequence.stop_tokens)
        self._text = b""

    def prepare(self, ahead: Sequence[int]) -> list[Edits | None]:  # noqa: ARG002 - there are no drafts
        if not self._text:
            return [None]
        return [Edits.add(self._stop_tokens, STOP * self._scorer.ask(self._helper, self._text))]

    def accept(self, tokens: Sequence[int]) -> None:
        pieces = [self._scorer.context.token_bytes[token] for token in tokens]
        self._text = (self._text + b"".join(pieces))[-MOST_BYTES:]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

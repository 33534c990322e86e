"""A grammar service that speaks the real wire over a real socket; what it answers is scripted.

Guided requests that no script answers are prepared as the real service would: loaded on every connected rank
(as llguidance text, compiled by llguidance itself), then Prepared.
"""

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from guided_contract import wire

Answer = Callable[[wire.Prepare], wire.Prepared | wire.Refused | None]
MessageT = TypeVar("MessageT", bound=wire.Message)


class Peer:
    """One connected process of the engine."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.hello: wire.Hello | None = None

    def send(self, message: wire.Message) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(wire.frame(message))

    def read(self) -> Iterator[wire.ClientMessage]:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as stream:
            while len(header := stream.read(wire.LENGTH.size)) == wire.LENGTH.size:
                size = wire.body_length(header)
                if len(body := stream.read(size)) == size:  # else it has gone in the middle of a message
                    yield wire.decode_client_message(body)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class FakeService:
    """Listens on `path` until `stop`. `script` maps a piece of the spec to the answer; None: never answer.

    `named`: what names stand for, and `unenforced` what is not enforced of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script: dict[str, Answer] = {}
        self.named: dict[str, tuple[wire.Kind, str]] = {}
        self.held_back: list[int] = []  # ids of Prepares whose proof is still to be judged
        self.unenforced: dict[str, list[str]] = {}
        self._peers: list[Peer] = []
        self._received: list[wire.ClientMessage] = []
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        self.path.unlink(missing_ok=True)
        with self._changed:
            peers, self._peers = self._peers, []
        for peer in peers:
            peer.close()

    def refuse(self, piece: str, code: str, message: str = "refused", **fields: object) -> None:
        """Answer specs that hold `piece` with Refused."""
        self.script[piece] = lambda asked: wire.Refused(id=asked.id, code=code, message=message, **fields)

    def hold_back(self, piece: str) -> None:
        """Prepare specs that hold `piece`, and leave the verdict of their proof to `judge`."""
        self.script[piece] = lambda asked: msgspec.structs.replace(self._prepare(asked), is_proven=False)

    def judge(self, verdict: wire.Proven | wire.Refused) -> None:
        """Tell API servers what the proof says of a grammar that was held back."""
        for api in self.peers("api"):
            api.send(verdict)

    def received(self, kind: type[MessageT]) -> list[MessageT]:
        with self._changed:
            return [message for message in self._received if isinstance(message, kind)]

    def forget(self) -> None:
        with self._changed:
            self._received = [message for message in self._received if isinstance(message, wire.Hello)]
            self.script.clear()
            self.held_back.clear()
            self.named.clear()

    def wait_for(
        self,
        kind: type[MessageT],
        fits: Callable[[MessageT], bool] = lambda _message: True,
        timeout_s: float = 20,
    ) -> MessageT:
        """Return the first message of a kind that fits, waiting for it."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for message in self._received:
                    if isinstance(message, kind) and fits(message):
                        return message
                if not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no fitting {kind.__name__} in {timeout_s} s; got {self._received}")

    def peers(self, role: wire.Role) -> list[Peer]:
        with self._changed:
            return [peer for peer in self._peers if peer.hello is not None and peer.hello.role == role]

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = Peer(listener.accept()[0])
                with self._changed:
                    self._peers.append(peer)
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        for message in peer.read():
            if isinstance(message, wire.Hello):
                peer.hello = message
                peer.send(wire.Welcome())
            with self._changed:
                self._received.append(message)
                self._changed.notify_all()
            if isinstance(message, wire.Prepare):
                answer = self._answer if message.name is None else self._answer_named
                threading.Thread(target=answer, args=(peer, message), daemon=True).start()

    def _answer(self, peer: Peer, asked: wire.Prepare) -> None:
        scripted = [answer for piece, answer in self.script.items() if piece in asked.spec]
        answer = scripted[0](asked) if scripted else self._prepare(asked)
        if answer is not None:
            peer.send(answer)
        if isinstance(answer, wire.Prepared) and not answer.is_proven:
            self.held_back.append(asked.id)

    def _answer_named(self, peer: Peer, asked: wire.Prepare) -> None:
        if asked.name is None or asked.name not in self.named:
            peer.send(wire.Refused(id=asked.id, code="grammar_unknown", message="no such grammar"))
            return
        kind, spec = self.named[asked.name]
        prepared = self._prepare(wire.Prepare(id=asked.id, kind=kind, spec=spec, timeout_s=asked.timeout_s))
        told = self.unenforced.get(asked.name, [])
        peer.send(msgspec.structs.replace(prepared, kind=kind, spec=spec, unenforced=told))

    def _prepare(self, asked: wire.Prepare) -> wire.Prepared:
        key = hashlib.sha256(f"{asked.kind}:{asked.spec}".encode()).hexdigest()
        ranks = [peer for peer in self.peers("rank") if peer.hello is not None and peer.hello.samples]
        for rank in ranks:
            rank.send(wire.Load(key=key, backend="guidance", spec=llguidance_text(asked)))
        deadline = time.monotonic() + 20
        with self._changed:
            while sum(isinstance(m, wire.Loaded) and m.key == key for m in self._received) < len(ranks):
                if not self._changed.wait(deadline - time.monotonic()):
                    break
        return wire.Prepared(id=asked.id, key=key, backend="guidance")


def llguidance_text(asked: wire.Prepare) -> str:
    """Return llguidance's own grammar text for the kinds that tests use."""
    from llguidance import LLMatcher, grammar_from

    if asked.kind == "choice":
        return str(grammar_from("regex", "|".join(json.loads(asked.spec))))
    if asked.kind in {"json", "json_object"}:
        schema = asked.spec or '{"type": "object"}'
        return str(LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True}))
    return str(grammar_from(asked.kind, asked.spec))

"""The sidecar's side of a benchmark's engine: compiles as it does, has every rank load the grammar."""

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import compiler, vocabulary
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Job

_LOAD_TIMEOUT_S: Final = 300.0
_COMPILE_THREADS: Final = 4


class Ranks:
    """Listens where a pod's sidecar would, welcomes the engine's processes, and sends Load to its ranks."""

    def __init__(self, path: Path, ranks: int) -> None:
        self._ranks = ranks
        self._connections: list[socket.socket] = []
        self._loaded: dict[str, list[str]] = {}  # key -> errors, "" where there was none
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._listener.close()

    def load(self, messages: Sequence[wire.Load]) -> None:
        """Have every rank load grammars.

        Raises
        ------
        RuntimeError
            A rank refused one, or did not answer in time.
        """
        with self._changed:
            self._wait(lambda: len(self._connections) == self._ranks, "the ranks' hello")
            for message in messages:
                self._loaded[message.key] = []
                for connection in self._connections:
                    connection.sendall(wire.frame(message))
            self._wait(lambda: all(len(self._loaded[m.key]) == self._ranks for m in messages), "Loaded")
            errors = {error for message in messages for error in self._loaded[message.key] if error}
        if errors:
            raise RuntimeError(f"ranks refuse grammars: {errors}")

    def _wait(self, holds: Any, what: str) -> None:
        if not self._changed.wait_for(holds, _LOAD_TIMEOUT_S):
            raise RuntimeError(f"no {what} in {_LOAD_TIMEOUT_S:.0f} s")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        for message in _messages(connection):
            with self._changed:
                if isinstance(message, wire.Hello):
                    connection.sendall(wire.frame(wire.Welcome()))
                    if message.role == "rank":
                        self._connections.append(connection)
                elif isinstance(message, wire.Loaded):
                    self._loaded[message.key].append(message.error)
                self._changed.notify_all()


class Grammars:
    """The sidecar's grammars, each compiled once, as its workers do, and loaded by the ranks."""

    def __init__(self, pod: PodConfig, ranks: Ranks) -> None:
        words = vocabulary.load(pod)
        known = Backends(words, Threads(compile=_COMPILE_THREADS))
        self._backends = list(known)
        self._compiler = compiler.Compiler(known, words)
        self._ranks = ranks
        self._tickets: dict[str, wire.Ticket] = {}

    def tickets(self, schemas: Sequence[str], choice: str) -> list[wire.Ticket]:
        """Return a ticket per schema, for which every rank has loaded the grammar.

        Parameters
        ----------
        choice
            A backend, or "auto" for the sidecar's own choice.
        """
        keys = [hashlib.sha256(f"{choice} {schema}".encode()).hexdigest() for schema in schemas]
        loads = []
        for key, schema in zip(keys, schemas, strict=True):
            if key not in self._tickets:
                loads.append(self._compile(key, choice, schema))
                self._tickets[key] = wire.Ticket(key=key, backend=loads[-1].backend)
        self._ranks.load(loads)
        return [self._tickets[key] for key in keys]

    def _compile(self, key: str, choice: str, schema: str) -> wire.Load:
        job = Job(
            key=key,
            kind="json",
            spec=schema,
            backends=[one for one in self._backends if choice in {one, "auto"}],
            named=next((one for one in self._backends if one == choice), None),
            timeout_s=_LOAD_TIMEOUT_S,
            memory_bytes=1 << 40,
        )
        return load_of(key, self._compiler.run(job))


def _messages(connection: socket.socket) -> Iterator[wire.ClientMessage]:
    with contextlib.suppress(OSError, EOFError), connection.makefile("rb") as stream:
        while header := stream.read(wire.LENGTH.size):
            yield wire.decode_client_message(stream.read(wire.body_length(header)))

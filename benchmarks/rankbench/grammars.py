"""The sidecar's side of a benchmark's engine: compiles as it does, has every rank load the grammar."""

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_sidecar.grammar import artifacts, backends, features, vocabulary

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
    """Compiles schemas with the sidecar's own code, once each, and loads them on the ranks."""

    def __init__(self, pod: PodConfig, ranks: Ranks) -> None:
        self._pod = pod
        self._ranks = ranks
        words = vocabulary.load(pod)
        self._compilers: dict[wire.Backend, Any] = {
            "xgrammar": backends.XGrammarBackend(words, _COMPILE_THREADS),
            "guidance": backends.GuidanceBackend(words),
        }
        self._tickets: dict[str, wire.Ticket] = {}

    def tickets(self, schemas: Sequence[str], choice: str) -> list[wire.Ticket]:
        """Return a ticket per schema, for which every rank has loaded the grammar.

        Parameters
        ----------
        choice
            A backend, or "auto" for the one that the sidecar would try first.
        """
        keys = []
        loads = []
        for schema in schemas:
            backend = features.order("json", json.loads(schema))[0] if choice == "auto" else _backend(choice)
            key = hashlib.sha256(f"{backend} {schema}".encode()).hexdigest()
            keys.append(key)
            if key not in self._tickets:
                loads.append(self._compile(key, backend, schema))
                self._tickets[key] = wire.Ticket(key=key, backend=backend)
        self._ranks.load(loads)
        return [self._tickets[key] for key in keys]

    def _compile(self, key: str, backend: wire.Backend, schema: str) -> wire.Load:
        text = self._compilers[backend].compile("json", schema, any_whitespace=True).load_text()
        if backend == "guidance":
            return wire.Load(key=key, backend=backend, spec=text)
        sha256 = artifacts.write(self._pod.grammars_folder, key, text.encode())
        return wire.Load(key=key, backend=backend, artifact=key, sha256=sha256)


def _backend(choice: str) -> wire.Backend:
    return "xgrammar" if choice == "xgrammar" else "guidance"


def _messages(connection: socket.socket) -> Iterator[wire.ClientMessage]:
    with contextlib.suppress(OSError, EOFError), connection.makefile("rb") as stream:
        while header := stream.read(wire.LENGTH.size):
            yield wire.decode_client_message(stream.read(wire.body_length(header)))

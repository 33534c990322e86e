"""When a launcher takes its API server for drained, and what clients of a draining one are told."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from guided_contract import wire
from guided_contract.config import DrainConfig
from guided_engine import ledger
from guided_engine.admission import draining, middleware
from guided_engine.launcher import drain
from guided_engine.launcher.drain import connections, wait
from support.admitting import gate_of
from support.collectors import eventually
from support.engine import pod_config
from support.played import played

LAG_S = 0.2
IDLE_S = 1.0


def test_the_kernel_knows_connections_that_nobody_has_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert connections(port) == 0
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            assert connections(port) == 2


@pytest.mark.parametrize(
    ("looks", "over_s"),
    [
        ([], 5.0),  # nobody there, but somebody might still be sent
        ([4.0], 6.0),
        ([4.9, 6.0, 7.5], 9.5),  # they keep coming
        ([1.0], 5.0),
    ],
)
@played
async def test_it_is_over_when_proxies_know_and_nobody_came_for_a_while(
    looks: list[float], over_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = asyncio.get_running_loop().time
    monkeypatch.setattr(drain, "connections", lambda _port: round(clock(), 1) in looks)
    await wait(DrainConfig(timeout_s=60, endpoint_lag_s=5), 8000)
    assert clock() == pytest.approx(over_s, abs=0.11)


class Server:
    """uvicorn with the middleware, as vLLM has it, and the file that says that the pod drains."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pod = pod_config(folder, "m", drain=DrainConfig(timeout_s=10, endpoint_lag_s=LAG_S))
        gate = gate_of(self.pod)
        monkeypatch.setattr(middleware, "process_gate", lambda: gate)
        monkeypatch.setattr(draining, "_LOOK_S", 0.02)
        monkeypatch.setattr(draining, "_IDLE_S", IDLE_S)
        monkeypatch.setattr(ledger, "applied", lambda: [wire.Patch(name="admission", state="Skipped")])
        self.app = Starlette(routes=[Route("/{path:path}", lambda _request: PlainTextResponse("ok"))])
        self.app.add_middleware(middleware.AdmissionMiddleware)
        config = uvicorn.Config(self.app, port=0, log_level="warning", timeout_keep_alive=60)
        self.server = self.app.state.server = uvicorn.Server(config)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator["Client"]:
        [listener] = self.server.servers[0].sockets
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, path: str = "/v1/models") -> bytes:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert await self._reader.readexactly(2) == b"ok"
        return head

    async def is_closed(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await self._reader.read() == b""
        return False


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    made = Server(tmp_path, monkeypatch)
    serving = asyncio.create_task(made.server._serve())
    await eventually(lambda: made.server.started)
    yield made
    made.server.should_exit = True
    await serving
    ours: Any = made.app.middleware_stack.app
    if ours._closing is not None:
        ours._closing.cancel()


async def test_a_draining_server_answers_and_says_good_bye(server: Server) -> None:
    async with server.connection() as client:
        assert b"connection: close" not in await client.ask()
        server.pod.draining_file.touch()
        assert b"connection: close" in await client.ask()
        assert await client.is_closed(5)
    async with server.connection() as late:
        assert b"connection: close" in await late.ask("/anything")


async def test_a_draining_server_closes_what_clients_have_long_given_up(server: Server) -> None:
    async with server.connection() as used, server.connection() as unused:
        await used.ask()
        server.pod.draining_file.touch()
        assert not await unused.is_closed(IDLE_S / 2)
        assert await unused.is_closed(5)
        assert await used.is_closed(5)


async def test_a_connection_just_made_is_left_the_time_to_ask(server: Server) -> None:
    """Also late in a drain: proxies may be late, and a client slow between connecting and asking."""
    server.pod.draining_file.touch()
    await asyncio.sleep(IDLE_S + LAG_S)
    async with server.connection() as late:
        assert not await late.is_closed(IDLE_S / 2)
        await late.ask()

"""Connections from the host into a node's namespaces.

A socket stays in the network namespace in which it was made: the host makes the listening one, the node's
first process inherits it and connects to an address on its own side. So no link between the two is needed.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass

CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Forward:
    """A listening socket's file descriptor, and the port of 127.0.0.1 in the node that it leads to."""

    descriptor: int
    port: int


async def serve(forwards: list[Forward]) -> None:
    """Forward for ever."""
    async with contextlib.AsyncExitStack() as stack:
        for forward in forwards:
            listener = socket.socket(fileno=forward.descriptor)
            server = await asyncio.start_server(_Link(forward.port).connect, sock=listener)
            await stack.enter_async_context(server)
        await asyncio.Event().wait()


class _Link:
    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:  # nothing listens there yet: the client sees a closed connection
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then pass the end on; a reset on one side closes the other."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()

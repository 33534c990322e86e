"""The test node's DNS: names of Services, as pods look them up, and nothing else."""

import asyncio
import ipaddress
import json
import struct
from collections.abc import Callable
from typing import cast

DOMAIN = "svc.cluster.local"
TTL_S = 5
_A, _INTERNET = 1, 1
_ANSWER = 0x8180  # a response, recursion desired and available
_NO_SUCH_NAME = 3
_HEADER = struct.Struct(">6H")
# SERVICE.NAMESPACE, known or not -> its address
Find = Callable[[str, str], ipaddress.IPv4Address | None]


class Resolver(asyncio.DatagramProtocol):
    """Answers questions for A records over UDP; others about a known name get an empty answer."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket to answer by."""
        self._transport = cast("asyncio.DatagramTransport", transport)  # asyncio's own is no subclass of it

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one question without making others wait."""
        task = asyncio.ensure_future(self._answer(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            name, kind, end = question(data)
        except (IndexError, struct.error, UnicodeDecodeError):  # no DNS
            return
        found = None
        if service := service_of(name):
            found = await asyncio.to_thread(self._find, *service)
        self._transport.sendto(response(data, end, kind, found), addr)


def question(data: bytes) -> tuple[str, int, int]:
    """Return a query's name, its type, and where its question ends."""
    labels, at = [], _HEADER.size
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    (kind,) = struct.unpack_from(">H", data, at + 1)
    return ".".join(labels).lower(), kind, at + 5


def service_of(name: str) -> tuple[str, str] | None:
    """Return service and namespace of a full name, None where it is no Service's."""
    parts = name.removesuffix(f".{DOMAIN}").split(".")
    if not name.endswith(f".{DOMAIN}") or len(parts) != 2:
        return None
    return parts[0], parts[1]


def response(data: bytes, end: int, kind: int, found: ipaddress.IPv4Address | None) -> bytes:
    """Return the answer to a query whose question ends at `end`."""
    (identity,) = struct.unpack_from(">H", data)
    flags = _ANSWER if found else _ANSWER | _NO_SUCH_NAME
    answers = int(found is not None and kind == _A)
    packet = _HEADER.pack(identity, flags, 1, answers, 0, 0) + data[_HEADER.size : end]
    if found is not None and answers:
        # 0xC00C points at the question's name.
        packet += struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, TTL_S, 4) + found.packed
    return packet


def service_address(read: Callable[[str], tuple[int, bytes]]) -> Find:
    """Return what asks the API server, by `read` of a path, for a Service's address."""

    def find(service: str, namespace: str) -> ipaddress.IPv4Address | None:
        status, body = read(f"/api/v1/namespaces/{namespace}/services/{service}")
        address = json.loads(body)["spec"].get("clusterIP", "None") if status == 200 else "None"
        return None if address == "None" else ipaddress.IPv4Address(address)

    return find


async def serve(address: str, find: Find, port: int = 53) -> asyncio.DatagramTransport:
    """Start answering at an address."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Resolver(find), local_addr=(address, port))
    return transport

"""The test node's DNS answers what pods ask for."""

import asyncio
import ipaddress
import socket
import struct

import pytest
from devtools import dns

ADDRESS = ipaddress.IPv4Address("10.96.0.7")


def query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("jaeger.observability.svc.cluster.local", ("jaeger", "observability")),
        ("kubernetes.default.svc.default.svc.cluster.local", None),
        ("example.org", None),
        ("svc.cluster.local", None),
    ],
)
def test_only_full_names_of_services_are_looked_up(name: str, service: tuple[str, str] | None) -> None:
    assert dns.service_of(name) == service


def test_known_name_has_its_address_and_no_other_record() -> None:
    asked = query("Jaeger.observability.svc.cluster.local", 1)
    name, kind, end = dns.question(asked)
    assert (name, kind, end) == ("jaeger.observability.svc.cluster.local", 1, len(asked))
    answer = dns.response(asked, end, kind, ADDRESS)
    assert answer[:8] == struct.pack(">4H", 77, 0x8180, 1, 1)
    assert answer.endswith(ADDRESS.packed)
    assert dns.response(asked, end, 28, ADDRESS)[:8] == struct.pack(">4H", 77, 0x8180, 1, 0)


async def test_question_over_udp_is_answered() -> None:
    def find(service: str, namespace: str) -> ipaddress.IPv4Address | None:
        return ADDRESS if (service, namespace) == ("jaeger", "observability") else None

    server = await dns.serve("127.0.0.1", find, port=0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect(server.get_extra_info("sockname"))
        client.send(b"no DNS")
        client.send(query("jaeger.observability.svc.cluster.local", 1))
        assert (await asyncio.to_thread(client.recv, 512)).endswith(ADDRESS.packed)
    server.close()


def test_unknown_name_does_not_exist() -> None:
    asked = query("none.default.svc.cluster.local", 1)
    assert dns.response(asked, len(asked), 1, None)[:8] == struct.pack(">4H", 77, 0x8183, 1, 0)

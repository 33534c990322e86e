"""What a broken worker or template may send to the service: answers to a job, packets with descriptors."""

import asyncio
import json
import os
import random
import socket
from collections.abc import Callable
from typing import Final

from guided_contract import wire
from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.bounds import Bounds, Where
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.pool.worker_process import Template, Worker
from guided_sidecar.grammar.prepare import preparer
from guided_sidecar.grammar.prepare.cache import Entry
from guided_sidecar.grammar.worker_messages import Done, Exited, Failed, Forked, JobError, Proof, Ready
from guided_sidecar.socket import sessions
from support.fuzz import mutation
from support.fuzz.target import Target

KEY: Final = "0123456789abcdef" * 4
_TEXT: Final = json.dumps({"a": "x" * 5, "b": [1, {"a": "y"}, "z"], "c": {"d": "é"}}).encode()
# The first byte of an input: an answer, or a packet with descriptors of these kinds.
_ANSWER, _PACKET = 0, 1


def target() -> Target:
    """Return the target."""
    service = _Service()
    return Target(seeds(), _changed, service.run, service.close)


def seeds() -> list[bytes]:
    """Return every kind of answer and packet."""
    positions = [
        Position(properties={"a": 1, "b": 2}, others=0),
        Position(minimum=1, maximum=9),
        Position(prefix=[-1, 0], items=1),
    ]
    proofs = [Proof("guidance", 1, 2)]
    answers = [
        Done(backend="guidance", spec="{}", positions=positions, size_bytes=2, proofs=proofs),
        Done(backend="xgrammar", artifact=KEY, sha256=KEY, compile_ns=5, retire=True),
        Failed(code=ErrorCode.GRAMMAR_INVALID, message="no", path="$.a", proofs=proofs),
    ]
    packets = [
        Ready(tokenizer={"xgrammar": "t"}, vocab_size=8, versions={"xgrammar": "1"}, resident_bytes=1),
        Forked(pid=7),
        Exited(pid=7, status=9),
    ]
    return [
        *(bytes([_ANSWER]) + worker_messages.answer(answer) for answer in answers),
        *(
            bytes([_PACKET, kinds]) + worker_messages.packet(packet)
            for packet in packets
            for kinds in (0, 3, 12)
        ),
    ]


def _changed(data: bytes, chance: random.Random) -> bytes:
    if data[:1] == bytes([_ANSWER]) and chance.random() < 0.9:
        body = mutation.either(mutation.msgpack_value)(data[1 + worker_messages.LENGTH.size :], chance)
        return data[:1] + worker_messages.LENGTH.pack(len(body)) + body
    if chance.random() < 0.5:
        data = data[:1] + bytes([chance.randrange(16)]) + data[2:]
    return data[:2] + mutation.either(mutation.msgpack_value)(data[2:], chance)


class _Service:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def run(self, data: bytes) -> None:
        if data[:1] == bytes([_ANSWER]):
            _take_answer(data[1:])
        elif len(data) > 1:
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - their number
            self._loop.run_until_complete(_take_packet(data[1], data[2:]))
            assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left"  # noqa: PTH208


def _take_answer(framed: bytes) -> None:
    """Do with an answer what the service does: pass it on to ranks or client, or take it for a death."""
    try:
        size = worker_messages.body_length(
            framed[: worker_messages.LENGTH.size].ljust(worker_messages.LENGTH.size),
            worker_messages.MAX_OUTCOME_BYTES,
        )
        outcome = worker_messages.decode_answer(framed[worker_messages.LENGTH.size :][:size], KEY)
    except JobError:
        return
    worker_messages.frame(outcome)
    if isinstance(outcome, Failed):
        error = GuidedError(outcome.code, outcome.message, path=outcome.path)
        assert len(wire.frame(sessions._refused(1, error))) < 1 << 16
        return
    load = preparer._load(Entry(KEY, outcome))
    read = wire.decode_service_message(wire.frame(load)[wire.LENGTH.size :])
    assert read == load
    assert load.artifact in {None, KEY}, "a file of somebody else's"
    bounds, where = Bounds(load.positions), Where()
    for at in range(len(_TEXT)):
        following = bounds.advance(where, _TEXT[at : at + 1])
        if following is None:
            return
        where = following


async def _take_packet(kinds: int, packet: bytes) -> None:
    taken: list[Worker] = []
    template = Template(taken.append)
    theirs, template._control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    template._control.setblocking(False)
    asyncio.get_running_loop().add_reader(template._control.fileno(), lambda: None)
    made: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    template._forks.append(made)
    descriptors = [
        _DESCRIPTORS[kinds >> 2 & 3 if number else kinds & 3](number) for number in range(kinds & 3)
    ]
    if packet:
        socket.send_fds(theirs, [packet[: worker_messages.MAX_PACKET_BYTES]], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    theirs.close()
    template._on_packet()
    if made.done() and made.exception() is None:
        made.result().close()
    await template.stop()
    assert template.died.is_set()


def _like_a_workers(number: int) -> int:
    """Return a descriptor of the kind that is meant in this place."""
    if number == 0:
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours.detach()
    return os.pidfd_open(os.getpid()) if number == 1 else os.memfd_create("stderr")


_DESCRIPTORS: Final[list[Callable[[int], int]]] = [
    _like_a_workers,
    lambda _: os.open("/dev/null", os.O_RDWR),
    lambda _: os.memfd_create("any"),
    _like_a_workers,
]

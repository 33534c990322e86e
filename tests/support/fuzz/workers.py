"""What a broken worker may send to the service: answers to a job."""

import json
import random
from typing import Final

from guided_contract import wire
from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.bounds import Bounds, Where
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.prepare import jobs
from guided_sidecar.grammar.worker_messages import (
    Compiled,
    Done,
    Failed,
    JobError,
    Proof,
)
from guided_sidecar.socket import sessions
from support.fuzz import mutation
from support.fuzz.target import Target

KEY: Final = "0123456789abcdef" * 4
_TEXT: Final = json.dumps({"a": "x" * 5, "b": [1, {"a": "y"}, "z"], "c": {"d": "é"}}).encode()


def target() -> Target:
    """Return the target."""
    return Target(seeds(), _changed, _take_answer)


def seeds() -> list[bytes]:
    """Return every kind of answer."""
    positions = [
        Position(properties={"a": 1, "b": 2}, others=0),
        Position(minimum=1, maximum=9),
        Position(prefix=[-1, 0], items=1),
    ]
    proofs = [Proof("guidance", 1, 2)]
    done = Done(backend="guidance", spec="{}", positions=positions, size_bytes=2, proofs=proofs)
    answers = [
        Compiled(done=done),
        done,
        Done(backend="xgrammar", artifact=KEY, sha256=KEY, compile_ns=5, retire=True),
        Failed(code=ErrorCode.GRAMMAR_INVALID, message="no", path="$.a", proofs=proofs),
    ]
    return [worker_messages.answer(answer) for answer in answers]


def _changed(data: bytes, chance: random.Random) -> bytes:
    body = mutation.either(mutation.msgpack_value)(data[worker_messages.LENGTH.size :], chance)
    return worker_messages.LENGTH.pack(len(body)) + body


def _take_answer(framed: bytes) -> None:
    """Do with an answer what the service does: pass it on to ranks or client, or take it for a death."""
    try:
        size = worker_messages.body_length(
            framed[: worker_messages.LENGTH.size].ljust(worker_messages.LENGTH.size),
            worker_messages.MAX_OUTCOME_BYTES,
        )
        message = worker_messages.decode_from_worker(framed[worker_messages.LENGTH.size :][:size], KEY)
    except JobError:
        return
    worker_messages.frame(message)
    if isinstance(message, Failed):
        error = GuidedError(message.code, message.message, path=message.path)
        assert len(wire.frame(sessions._refused(1, error))) < 1 << 16
        return
    load = jobs.load_of(KEY, message.done if isinstance(message, Compiled) else message)
    read = wire.decode_service_message(wire.frame(load)[wire.LENGTH.size :])
    assert read == load
    assert load.artifact in {None, KEY}, "a file of somebody else's"
    bounds, where = Bounds(load.positions), Where()
    for at in range(len(_TEXT)):
        following = bounds.advance(where, _TEXT[at : at + 1])
        if following is None:
            return
        where = following

"""What a worker's answer must be before the service believes it: a broken worker costs itself alone."""

from typing import Any

import msgspec
import pytest

from guided_contract import wire
from guided_contract.counting import Position
from guided_contract.errors import MALFORMED, ErrorCode
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.worker_messages import Done, Failed

KEY = "ab" * 32
XGRAMMAR: dict[str, Any] = {"type": "Done", "backend": "xgrammar", "spec": "g"}
GUIDANCE: dict[str, Any] = {"type": "Done", "backend": "guidance", "spec": "{}"}
REFUSED: dict[str, Any] = {"type": "Failed", "code": "grammar_invalid", "message": "no"}
EARLY: dict[str, Any] = {"type": "Compiled", "done": GUIDANCE}


@pytest.mark.parametrize("answer", [XGRAMMAR, GUIDANCE, REFUSED, REFUSED | {"path": "$"}, EARLY])
def test_a_whole_answer_is_taken(answer: dict[str, Any]) -> None:
    outcome = worker_messages.decode_from_worker(msgspec.msgpack.encode(answer))
    assert worker_messages.decode_from_worker(worker_messages.answer(outcome)[wire.LENGTH.size :]) == outcome


@pytest.mark.parametrize("answer", [{}, GUIDANCE | {"size_bytes": -1}, REFUSED | {"code": "no such code"}])
def test_any_other_is_the_workers_death(answer: dict[str, Any]) -> None:
    with pytest.raises(MALFORMED):
        worker_messages.decode_from_worker(msgspec.msgpack.encode(answer))


def test_what_is_too_long_for_the_ranks_is_a_refusal() -> None:
    """It failed in the service, for every request anew, and for every rank that came back."""
    positions = [Position(maximum=3, others=0)]
    most = Done(
        backend="guidance", spec="x" * (worker_messages.MAX_OUTCOME_BYTES - 1000), positions=positions
    )
    fits = worker_messages.answer(most)[wire.LENGTH.size :]
    assert worker_messages.decode_from_worker(fits) == most
    load = wire.Load(key=KEY, backend="guidance", spec=most.spec, positions=positions)
    assert wire.frame(load)

    longer = msgspec.structs.replace(most, spec="x" * worker_messages.MAX_OUTCOME_BYTES, retire=True)
    refused = worker_messages.decode_from_worker(worker_messages.answer(longer)[wire.LENGTH.size :])
    assert isinstance(refused, Failed)
    assert (refused.code, refused.retire) == (ErrorCode.GRAMMAR_TOO_LARGE, True)

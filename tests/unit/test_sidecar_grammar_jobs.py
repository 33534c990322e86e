"""What a worker's answer must be before the service believes it: a broken worker costs itself alone."""

from typing import Any

import msgspec
import pytest

from guided_contract import wire
from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import jobs
from guided_sidecar.grammar.jobs import Done, Failed, JobError

KEY = "ab" * 32
XGRAMMAR: dict[str, Any] = {"type": "Done", "backend": "xgrammar", "artifact": KEY, "sha256": KEY}
GUIDANCE: dict[str, Any] = {"type": "Done", "backend": "guidance", "spec": "{}"}
REFUSED: dict[str, Any] = {"type": "Failed", "code": "grammar_invalid", "message": "no"}


@pytest.mark.parametrize("answer", [XGRAMMAR, GUIDANCE, REFUSED, REFUSED | {"path": "$"}])
def test_a_whole_answer_is_taken(answer: dict[str, Any]) -> None:
    outcome = jobs.decode_outcome(msgspec.msgpack.encode(answer), KEY)
    assert jobs.decode_outcome(jobs.answer(outcome)[jobs.LENGTH.size :], KEY) == outcome


@pytest.mark.parametrize(
    "answer",
    [
        XGRAMMAR | {"artifact": "../service.sock"},
        XGRAMMAR | {"artifact": "cd" * 32},
        XGRAMMAR | {"artifact": None},
        XGRAMMAR | {"sha256": "0"},
        XGRAMMAR | {"spec": "{}"},
        GUIDANCE | {"spec": None},
        GUIDANCE | {"artifact": KEY, "sha256": KEY},
        GUIDANCE | {"size_bytes": -1},
        GUIDANCE | {"compile_ns": 1 << 63},
        GUIDANCE | {"positions": [{"items": 1}]},
        GUIDANCE | {"positions": [{"properties": {"a": -2}}]},
        GUIDANCE | {"positions": [{"minimum": -1}]},
        GUIDANCE | {"positions": [{}] * 5000},
        REFUSED | {"code": "no such code"},
        REFUSED | {"message": "x" * 5000},
    ],
    ids=str,
)
def test_any_other_is_the_workers_death(answer: dict[str, Any]) -> None:
    with pytest.raises(JobError):
        jobs.decode_outcome(msgspec.msgpack.encode(answer), KEY)


def test_a_frame_longer_than_ranks_take_is_refused_unread() -> None:
    header = jobs.LENGTH.pack(jobs.MAX_OUTCOME_BYTES + 1)
    assert jobs.body_length(header)
    with pytest.raises(JobError):
        jobs.body_length(header, jobs.MAX_OUTCOME_BYTES)


def test_what_is_too_long_for_the_ranks_is_a_refusal() -> None:
    """It failed in the service, for every request anew, and for every rank that came back."""
    positions = [Position(maximum=3, others=0)]
    most = Done(backend="guidance", spec="x" * (jobs.MAX_OUTCOME_BYTES - 1000), positions=positions)
    fits = jobs.answer(most)[jobs.LENGTH.size :]
    assert jobs.decode_outcome(fits, KEY) == most
    load = wire.Load(key=KEY, backend="guidance", spec=most.spec, positions=positions)
    assert wire.frame(load)

    longer = msgspec.structs.replace(most, spec="x" * jobs.MAX_OUTCOME_BYTES, retire=True)
    refused = jobs.decode_outcome(jobs.answer(longer)[jobs.LENGTH.size :], KEY)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.retire) == (ErrorCode.GRAMMAR_TOO_LARGE, True)


def test_a_refusal_is_cut_to_what_the_service_takes() -> None:
    error = GuidedError(ErrorCode.GRAMMAR_INVALID, "x" * 100_000, path="$." + "y" * 100_000)
    refused = jobs.decode_outcome(jobs.frame(jobs.refusal(error))[jobs.LENGTH.size :], KEY)
    assert isinstance(refused, Failed)
    assert refused.message == "x" * len(refused.message)
    assert refused.path is None, "half a path is none"

"""Schemas that nobody means: each costs its own request a refusal, and no worker its life."""

import json
from typing import Any, NoReturn

import pytest

from guided_contract.errors import ErrorCode
from guided_sidecar.grammar.compile import followed, worker
from guided_sidecar.grammar.worker_messages import Failed, Job

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
BOUNDED = {"type": "string", "maxLength": 3}


@pytest.mark.parametrize(("count", "length"), [(500, 10), (40, 4000)], ids=["many names", "long names"])
def test_positions_that_would_fill_a_message_are_not_counted(count: int, length: int) -> None:
    """Each of many places repeats all names."""
    names = {f"{'x' * length}{number}": BOUNDED for number in range(count)}
    reference = [{"$ref": f"#/$defs/n{level}"} for level in range(9)]
    defs: dict[str, Any] = {
        f"n{level}": {
            "type": "object",
            "properties": {"a": reference[level + 1], "b": reference[level + 1]},
            "additionalProperties": False,
        }
        for level in range(1, 8)
    }
    defs["n8"] = BOUNDED
    both = {"anyOf": [reference[0], reference[1]]}
    named = {**names, "a": both, "b": reference[0]}
    defs["n0"] = {"type": "object", "properties": named, "additionalProperties": False}
    text = json.loads(json.dumps({"$defs": defs, "$ref": "#/$defs/n0"}))

    assert followed.split(text, "xgrammar") == (text, [])


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (AttributeError("'str' object has no attribute 'keys'"), ErrorCode.GRAMMAR_COMPILE_CRASHED),
        (RuntimeError("std::bad_alloc"), ErrorCode.GRAMMAR_COMPILE_MEMORY),
    ],
)
def test_a_fault_outside_the_compilers_costs_one_request(fault: Exception, code: ErrorCode) -> None:
    class Faulty:
        def run(self, _job: Job, _tell: Any) -> NoReturn:
            raise fault

    job = Job(key="k", kind="json", spec="{}", backends=[], timeout_s=1, memory_bytes=1)
    faulty: Any = Faulty()

    outcome = worker._outcome(faulty, job, lambda _done: None)

    assert isinstance(outcome, Failed)
    assert outcome.code == code
    assert outcome.retire, "what else it left behind nobody knows"

"""docs/examples/helper_process.py, whose helper dies, hangs and is replaced."""

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from guided_engine.processors.interface import Context
from guided_engine.processors.sequence import ProcessorError
from guided_engine.testing import Harness, Sequence
from support import processor_rules
from support.waiting import eventually

FILE = Path(__file__).parents[2] / "docs/examples/helper_process.py"
STOP, WORD, MARK = range(3)
CONTEXT = Context(vocab_size=3, token_bytes=[b"", b"word", b"!"], stop_tokens=frozenset({STOP}))


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("helper_process", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a configuration's "module:Class" is looked up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def helper(sequence: Sequence) -> Any:
    return sequence.processors[0]._scorer.helper.process


def begun(rank: Harness, *tokens: int) -> Sequence:
    """Return a sequence as soon as the helper is ready."""

    def begin() -> Sequence | None:
        with contextlib.suppress(ProcessorError):  # it is starting
            return rank.sequence()
        return None

    sequence = eventually(begin)
    sequence.accept(*tokens)
    return sequence


@pytest.mark.parametrize(
    ("does", "deadline_ms", "why"),
    [(signal.SIGKILL, 10_000, "Error"), (signal.SIGSTOP, 50, "TimeoutError: timed out")],
    ids=["dies", "hangs"],
)
def test_a_helper_that_fails_ends_its_sequences_and_is_replaced_and_close_ends_all(
    example: ModuleType, does: int, deadline_ms: int, why: str
) -> None:
    rank = Harness(example.Scorer, {"deadline_ms": deadline_ms}, CONTEXT)
    asking, waiting = begun(rank, WORD), begun(rank, WORD)
    failing = helper(asking)
    failing.send_signal(does)

    with pytest.raises(ProcessorError, match=why):
        asking.rows()
    # Of one failure all learn at once: nobody waits for the same helper again.
    with pytest.raises(ProcessorError, match="has been replaced"):
        waiting.rows()
    assert failing.wait(10) == -signal.SIGKILL

    def answer() -> Any:
        try:
            return begun(rank, MARK).rows()
        except ProcessorError:  # a deadline of 50 ms is short for a busy machine
            return None

    assert eventually(lambda: answer() is not None)
    last = helper(begun(rank))
    last.send_signal(signal.SIGSTOP)
    rank.close()
    assert last.returncode == -signal.SIGKILL


def test_the_rules_of_factories_are_kept(example: ModuleType) -> None:
    processor_rules.check(example.Scorer, {"deadline_ms": 10_000}, CONTEXT, steps=5)

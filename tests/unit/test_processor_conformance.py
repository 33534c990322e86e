"""The check of factories finds what breaks its rules."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from guided_engine.processors.edits import Edits
from guided_engine.processors.interface import (
    DenseFactory,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.testing import check_factory
from guided_engine.testing.conformance import ConformanceError


class Follows(SequenceProcessor):
    """Prefers the token that it is told, in each row."""

    token = 0

    def prepare(self, ahead: Sequence[int]) -> list[Edits]:
        return [Edits.add([self.token], 1.0) for _ in range(1 + len(ahead))]

    def accept(self, tokens: Sequence[int]) -> None:
        pass


class CountsCalls(ProcessorFactory[Params]):
    """Counts how often it is told of tokens, and not the tokens; without drafts it is told one at a time."""

    supports_speculation = False

    class Counter(Follows):
        def accept(self, _tokens: Sequence[int]) -> None:
            self.token += 1

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor:
        return self.Counter()


class KeepsAPrompt(ProcessorFactory[Params]):
    """Takes the first sequence's prompt for everyone's."""

    prompt: Sequence[int] = ()

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor:
        self.prompt = self.prompt or sequence.prompt_tokens
        made = Follows()
        made.token = self.prompt[0]
        return made


class HashesAName(ProcessorFactory[Params]):
    """Takes a token by the hash of the request's name, which differs between processes."""

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor:
        made = Follows()
        made.token = hash(sequence.request_id) % self.context.vocab_size
        return made


class ReadsOnTheHost(DenseFactory[Params]):
    """Looks at a number, as `.item()`, `if tensor:` and `.numpy()` do; it is a RuntimeError of torch."""

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor:
        return Follows()

    def apply(self, logits: Any, _rows: Sequence[Any]) -> None:
        logits[0, 0].item()


@pytest.mark.parametrize(
    ("factory", "rule"), [(CountsCalls, 3), (KeepsAPrompt, 4), (HashesAName, 5), (ReadsOnTheHost, 7)]
)
def test_a_broken_rule_is_named(factory: type[ProcessorFactory[Any]], rule: int) -> None:
    with pytest.raises(ConformanceError, match=f"^rule {rule} is broken"):
        check_factory(factory)


def test_who_cannot_be_imported_by_another_process_is_told_so() -> None:
    class Local(HashesAName):
        """No module has it."""

    with pytest.raises(ConformanceError, match=r"^rule 5 cannot be tried, .*Local.*second_process=False"):
        check_factory(Local)
    check_factory(Local, second_process=False)


def test_a_module_that_another_process_does_not_find_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_up", sys.modules[__name__])
    monkeypatch.setattr(HashesAName, "__module__", "made_up")
    with pytest.raises(ConformanceError, match=r"^rule 5 cannot be tried, .*No module named 'made_up'"):
        check_factory(HashesAName)

"""The check of factories finds what breaks its rules."""

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


class ReadsOnTheHost(DenseFactory[Params]):
    """Looks at a number, as `.item()`, `if tensor:` and `.numpy()` do; it is a RuntimeError of torch."""

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor:
        return Follows()

    def apply(self, logits: Any, _rows: Sequence[Any]) -> None:
        logits[0, 0].item()


@pytest.mark.parametrize(("factory", "rule"), [(CountsCalls, 3), (KeepsAPrompt, 4), (ReadsOnTheHost, 7)])
def test_a_broken_rule_is_named(factory: type[ProcessorFactory[Any]], rule: int) -> None:
    with pytest.raises(ConformanceError, match=f"^rule {rule} is broken"):
        check_factory(factory)

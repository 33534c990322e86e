"""The example processor, and how a request chooses among configured ones."""

import random
from functools import partial
from typing import Any

import pytest
import torch

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode
from guided_engine.processors.choice import ChoiceError
from guided_engine.processors.examples import NoRepeat
from guided_engine.processors.interface import SequenceInfo, SequenceProcessor
from guided_engine.processors.registry import Registry
from guided_engine.ranks.sequence import GuidedSequence

VOCAB = 12


def state(**params: object) -> SequenceProcessor:
    made = NoRepeat(**params).create(SequenceInfo([1, 2], VOCAB, frozenset({0})))  # type: ignore[arg-type]
    assert made is not None
    return made


def penalised(processor: SequenceProcessor) -> list[int]:
    logits = torch.zeros(VOCAB)
    processor.apply(logits)
    return torch.nonzero(logits).flatten().tolist()


def expected(tokens: list[int], size: int) -> list[int]:
    """Return what would repeat a run, found the slow way."""
    run = tokens[len(tokens) - size + 1 :]
    if len(run) < size - 1:
        return []
    starts = range(len(tokens) - size + 1)
    return sorted({tokens[i + size - 1] for i in starts if tokens[i : i + size - 1] == run} - {0})


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_would_repeat_a_run_is_penalised_also_in_forks_of_forks(size: int) -> None:
    rng = random.Random(size)
    processor, tokens = state(size=size), []
    for _ in range(60):
        assert penalised(processor) == expected(tokens, size)
        fork, ahead = processor, tokens.copy()
        for _ in range(rng.randrange(4)):
            fork = fork.fork()
            draft = rng.randrange(VOCAB)
            fork.accept(draft)
            ahead.append(draft)
            assert penalised(fork) == expected(ahead, size)
        assert penalised(processor) == expected(tokens, size)
        token = rng.randrange(VOCAB)
        processor.accept(token)
        tokens.append(token)


def test_exempt_and_stop_tokens_may_repeat() -> None:
    processor = state(size=1, exempt=[5])
    for token in (0, 5, 6):
        processor.accept(token)
    assert penalised(processor) == [6]


def test_a_penalty_leaves_every_token_possible() -> None:
    processor = state(size=1, penalty=7.5)
    processor.accept(3)
    logits = torch.zeros(VOCAB)
    processor.apply(logits)
    assert logits[3] == -7.5
    assert logits.isfinite().all()


def registry(*enforced: str) -> Registry:
    factory = "guided_engine.processors.examples:NoRepeat"
    configs = [
        LogitsProcessorConfig(name="first", factory=factory, params={"size": 1}),
        LogitsProcessorConfig(name="second", factory=factory, params={"size": 2}),
        LogitsProcessorConfig(name="asked-for", factory=factory, params={"size": 3}, apply_by_default=False),
        *(
            LogitsProcessorConfig(name=name, factory=factory, params={"size": 9}, enforced=True)
            for name in enforced
        ),
    ]
    return Registry(configs)


@pytest.mark.parametrize(
    ("choice", "sizes"),
    [
        ({}, [1, 2]),
        ({"logits_processors": "asked-for"}, [3]),
        ({"logits_processors": " asked-for, first "}, [3, 1]),
        ({"logits_processors": ["second"]}, [2]),
        ({"logits_processors": ""}, []),
        ({"logits_processors": []}, []),
    ],
)
def test_a_request_gets_the_defaults_or_what_it_asks_for(choice: dict[str, object], sizes: list[int]) -> None:
    states = registry().create(SequenceInfo([1], VOCAB, arguments=choice))
    assert [one._size for one in states] == sizes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("choice", "sizes"),
    [({}, [1, 2, 9]), ({"logits_processors": ""}, [9]), ({"logits_processors": "first"}, [9, 1])],
)
def test_what_is_enforced_is_left_out_by_no_request(choice: dict[str, object], sizes: list[int]) -> None:
    states = registry("enforced").create(SequenceInfo([1], VOCAB, arguments=choice))
    assert [one._size for one in states] == sizes  # type: ignore[attr-defined]


@pytest.mark.parametrize("choice", ["first,absent", "first,first", 5, ["first"] * 200_000])
def test_a_choice_that_came_past_admission_ends_its_sequence_alone(choice: Any) -> None:
    with pytest.raises(ChoiceError):
        registry().create(SequenceInfo([1], VOCAB, arguments={"logits_processors": choice}))
    sequence = GuidedSequence("r", prompt_length=1, ticket=None, needed=1, computed=0, since_step=0)
    sequence.make_processors = partial(
        registry().create, SequenceInfo([1], VOCAB, arguments={"logits_processors": choice})
    )
    sequence.start_processors()
    assert (sequence.failure, sequence.processors) == (ErrorCode.SEQUENCE_PROCESSOR_FAILED, [])


def test_each_sequence_has_its_own_state() -> None:
    factory = NoRepeat(size=1)
    first, second = (factory.create(SequenceInfo([1], VOCAB)) for _ in range(2))
    first.accept(3)
    assert penalised(first) == [3]
    assert penalised(second) == []

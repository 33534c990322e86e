"""Where grammars begin after reasoning: against upstream's own rule, and in a rank's rows (vLLM PR 44993)."""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from devtools import tinymodel

from guided_contract.wire import Ticket
from guided_engine.compat import minor
from guided_engine.matchers.reasoning import Boundary, Reasoning
from support.rank import EOS, A, B, C, Rank, arrival, forbidden, rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

THINK_END, STOP = ord(">"), 7
NO_ENDS: Any = SimpleNamespace(ends=frozenset(), valid_prefix=len)
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(tinymodel.models() / "tiny")
    found.add_tokens(list(WORDS), special_tokens=True)
    return found


class WholeText:
    """A parser that answers for a whole text alone: three tokens end it, which a draft may cut anywhere."""

    def __init__(self, tokenizer: Any) -> None:
        self.model_tokenizer = tokenizer
        self.ends = [tokenizer.get_vocab()[word] for word in ("</think>", "<tool_call>", "</think>")]

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        ids = list(input_ids)
        return any(ids[i : i + 3] == self.ends for i in range(len(ids)))

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], _delta: Sequence[int]) -> bool:
        return self.is_reasoning_end(input_ids)


def make_parser(name: str, tokenizer: Any) -> Any:
    from vllm.reasoning import ReasoningParserManager

    from support.reasoning_parser import CommaReasoningParser

    if name == "whole text":
        return WholeText(tokenizer)
    if name == "comma":
        return CommaReasoningParser(tokenizer)
    return ReasoningParserManager.get_reasoning_parser(name)(tokenizer)


def upstream(parser: Any, prompt: list[int], *, ended: bool | None) -> tuple[Any, Any]:
    """Return upstream's manager and a request that has come so far, both with nothing else in them."""
    from vllm.v1.structured_output import StructuredOutputManager

    manager = object.__new__(StructuredOutputManager)
    manager.enable_in_reasoning = False
    manager.reasoner_cls = type(parser)
    structured = SimpleNamespace(reasoning_ended=ended, reasoner=parser)
    request = SimpleNamespace(
        structured_output_request=structured, prompt_token_ids=prompt, all_token_ids=list(prompt)
    )
    return manager, request


# By one token; by an engine, where a tool call ends it too and is content; by three tokens; by any of many.
@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3", "whole text", "comma"])
def test_the_boundary_is_upstreams(name: str, tokenizer: Any) -> None:
    from guided_engine.compat.runner_reasoning import EngineReasoner

    if name == "qwen3" and not minor.here().has_implicit_ends:
        pytest.skip("this vLLM loses the token that is content, too")
    vocabulary = tokenizer.get_vocab()
    words = [*(vocabulary[word] for word in WORDS), vocabulary[","], 300, 301, 302]
    if name == "whole text":
        words = [*make_parser(name, tokenizer).ends, 300]
    rng = random.Random(44993)
    inside = 0
    for _ in range(150):
        prompt, ended = rng.choices(words, k=3), rng.choice((None, None, False, True))
        if rng.random() < 0.5:
            prompt.append(vocabulary["<think>"])
        reasoning = Reasoning(
            lambda: EngineReasoner(make_parser(name, tokenizer)), prompt, NO_ENDS, has_ended=ended
        )
        manager, request = upstream(make_parser(name, tokenizer), prompt, ended=ended)
        known = 0
        while known < 14:
            drafts = rng.choices(words, k=rng.randint(0, 4))
            opening = reasoning.opening(drafts)[:2]
            if minor.here().has_implicit_ends:
                assert opening == manager._get_constraint_bounds(request, drafts)
            else:
                assert opening == (manager._get_constraint_start(request, drafts),) * 2
            inside += 0 < opening[1] <= len(drafts)
            # As sampled: some of the drafts, and one more token.
            tokens = [*drafts[: rng.randint(0, len(drafts))], rng.choice(words)]
            request.all_token_ids += tokens
            fed: list[int] = []
            request.structured_output_request.grammar = SimpleNamespace(
                accept_tokens=lambda _id, given, fed=fed: fed.extend(given) or True
            )
            request.use_structured_output, request.request_id = True, "r"
            manager.accept_tokens(request, tokens)
            assert tokens[reasoning.accept(known, tokens) :] == fed
            known += len(tokens)
    assert inside > 10


def test_the_parser_is_the_one_that_the_engine_was_given(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    from guided_engine.compat import runner_reasoning
    from support import reasoning_parser

    given = SimpleNamespace(
        reasoning_parser=reasoning_parser.NAME,
        reasoning_parser_plugin=reasoning_parser.PLUGIN,
        enable_in_reasoning=False,
    )
    model = SimpleNamespace(skip_tokenizer_init=False)
    config = SimpleNamespace(structured_outputs_config=given, model_config=model)
    monkeypatch.setattr(runner_reasoning, "cached_tokenizer_from_config", lambda _model: tokenizer)
    runner_reasoning.import_plugin(config)
    make = runner_reasoning.reasoner_factory(config)
    assert make is not None
    reasoner = make({"chat_template_kwargs": {}})
    assert not reasoner.has_ended(tokenizer.encode("<|pad|>a"))
    assert reasoner.has_ended(tokenizer.encode("a"))


class ByEnd:
    """Reasons until `>`; a prompt that ends with it has reasoned. The argument "broken" makes it raise."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        if "broken" in arguments:
            raise RuntimeError("no such token")

    def has_ended(self, prompt: Sequence[int]) -> bool:
        return THINK_END in prompt

    def boundary(self, _before: list[int], tokens: Sequence[int]) -> Boundary:
        first = tokens.index(THINK_END) + 1 if THINK_END in tokens else len(tokens) + 1
        return Boundary(first, first)

    def has_begun(self, _prompt: Sequence[int]) -> bool:
        return True

    def implicit_ends(self) -> Sequence[int]:
        return ()


class Implicit(ByEnd):
    """Reasoning ends with the first token of either of two grammars."""

    def boundary(self, _before: list[int], tokens: Sequence[int]) -> Boundary:
        first = next((index for index, token in enumerate(tokens) if token in (A, C)), len(tokens) + 1)
        return Boundary(first, first + 1)

    def implicit_ends(self) -> Sequence[int]:
        return (A, C)


@pytest.fixture
def rank() -> Rank:
    return Rank(reasoner=ByEnd)


def free(masks: Any, row: int, *held_back: int) -> bool:
    """Return whether a row allows all but the end of the text and these tokens."""
    return forbidden(masks, row) == {EOS, *held_back}


class TestRows:
    def test_pr_44993_within_a_draft_only_the_rows_after_the_boundary_are_masked(self, rank: Rank) -> None:
        ticket = rank.load("abc")
        rank.step([arrival("r", ticket), arrival("s", ticket)])
        drafts = {"r": [STOP, THINK_END, A, C], "s": [A, B]}
        masks = rank.next(r=[STOP], s=[THINK_END], drafts=drafts)
        assert masks.request_ids == ["r", "s"]
        assert [free(masks, row) for row in range(8)] == [True, True, *[False] * 6]
        assert [rows(masks)[row] for row in (2, 3, 5, 6, 7)] == [[A], [B], [A], [B], [C]]
        assert masks.acceptable == [3, 2]
        assert rows(rank.next(r=[STOP, THINK_END, A, B], s=[A])) == [[C], [B]]

    def test_a_stop_token_of_the_request_may_not_come_either(self, rank: Rank) -> None:
        """A matcher may know the tokenizer's own end alone; Qwen3 has two, and a client names more."""
        assert free(rank.step([arrival("r", rank.load("ab"), stop_tokens=[EOS, C])]), 0, C)

    @pytest.mark.parametrize(("drafts", "taken"), [([STOP, C], 2), ([STOP, EOS], 1), ([EOS, THINK_END], 0)])
    def test_a_draft_that_reasons_on_may_come_up_to_an_end(
        self, rank: Rank, drafts: list[int], taken: int
    ) -> None:
        rank.step([arrival("r", rank.load("ab"))])
        masks = rank.next(r=[STOP], drafts={"r": drafts})
        assert masks.acceptable == [taken]
        assert all(free(masks, row) for row in range(1 + taken))

    def test_a_token_that_is_content_already_is_the_grammars_but_not_masked(self) -> None:
        rank = Rank(reasoner=Implicit)
        rank.step([arrival("r", rank.load("abc"))])
        masks = rank.next(r=[STOP], drafts={"r": [STOP, A, B]})
        # The other grammar's first token would end reasoning, too.
        assert [free(masks, row, C) for row in range(4)] == [True, True, False, False]
        assert (rows(masks)[2:], masks.acceptable) == ([[B], [C]], [3])
        assert rows(rank.next(r=[STOP, A])) == [[B]]

    @pytest.mark.parametrize(
        ("ended", "prompt", "masked"),
        [(None, [1], False), (None, [1, THINK_END], True), (True, [1], True), (False, [THINK_END], False)],
    )
    def test_the_prompt_may_have_ended_it(
        self, rank: Rank, *, ended: bool | None, prompt: list[int], masked: bool
    ) -> None:
        rank.load("ab")
        ticket = Ticket(key="ab", backend="guidance", reasoning_ended=ended)
        masks = rank.step([arrival("r", ticket, prompt_tokens=prompt)])
        assert rows(masks) == [[A]] if masked else free(masks, 0)

    def test_a_parser_that_fails_ends_its_own_sequence(self, rank: Rank) -> None:
        healthy = rank.load("ab")
        broken = Ticket(key="ab", backend="guidance", reasoning_arguments={"broken": 1})
        rank.step([arrival("r", broken), arrival("s", healthy)])
        assert rank.next(r=[STOP], s=[THINK_END]).request_ids == ["s"]
        assert rank.ended == {"r": "sequence_matcher_failed"}

    def test_a_preempted_sequence_comes_back_on_its_side_of_the_boundary(self, rank: Rank) -> None:
        ticket = rank.load("a[bc]")
        rank.step([arrival("r", ticket)])
        rank.next(r=[STOP])
        assert rows(rank.next(r=[THINK_END])) == [[A]]
        rank.next(r=[A])
        for known, expected in (([STOP, THINK_END], [A]), ([STOP, THINK_END, A, B], [EOS])):
            assert rows(rank.step([arrival("r", ticket, known_tokens=[1, 2, 3, *known])])) == [expected]
        # Back before the boundary: it reasons again, and may end elsewhere.
        assert free(rank.step([arrival("r", ticket, known_tokens=[1, 2, 3, STOP])]), 0)
        assert rows(rank.next(r=[THINK_END])) == [[A]]

"""Masks of the ranks against the installed vLLM's own grammar classes, walked along the same tokens."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from guided_contract.wire import Backend, Kind
from guided_engine.matchers.bitmasks import MaskFiller, settle_dead_ends
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from support.grammars import OF_EVERY_KIND
from support.worker_and_rank import EOS, WorkerAndRank

# vLLM and torch warn of their own deprecations where they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

VOCAB = 8192
# What each library takes of the common corpus.
TAKEN = [
    (backend, name)
    for backend in ("xgrammar", "guidance")
    for name in OF_EVERY_KIND
    if (backend, name) not in {("guidance", "EBNF"), ("xgrammar", "Lark")}
]


class Twins(NamedTuple):
    """The same grammar for us and for vLLM: what makes the matcher of a sequence."""

    ours: Callable[[], Matcher]
    upstream: Callable[[], Any]


def made(words: WorkerAndRank, backend: Backend, kind: Kind, spec: str) -> Twins:
    import llguidance
    import xgrammar
    from vllm.v1.structured_output.backend_guidance import GuidanceGrammar
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    text = words.backends[backend].compile(kind, spec).source()
    native = words.words.native(backend)
    loaded = words.backends[backend].load(text)
    if backend == "xgrammar":
        source = xgrammar.Grammar.deserialize_json(text)
        compiled = xgrammar.GrammarCompiler(native).compile_grammar(source)

        def upstream() -> Any:
            matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=[EOS])
            return XgrammarGrammar(VOCAB, matcher, compiled)
    else:
        prototype = llguidance.LLMatcher(native, text)

        def upstream() -> Any:
            return GuidanceGrammar(prototype.deep_copy(), native, VOCAB)

    return Twins(lambda: loaded.matcher([EOS]), upstream)


def filled(filler: MaskFiller, walks: list[GuidedRows[Any]], width: int = VOCAB) -> np.ndarray:
    bitmask = np.zeros((walks[-1].end, width // 32), np.int32)
    filler.fill(walks, bitmask)
    return bitmask


@pytest.fixture(scope="module")
def words() -> WorkerAndRank:
    return WorkerAndRank.of("tiny")


def allowed(row: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def upstream_rows(grammar: Any, drafts: list[int], rows: int) -> np.ndarray:
    """Fill as StructuredOutputManager.grammar_bitmask does, after it has validated the drafts."""
    import torch

    bitmask = torch.full((rows, VOCAB // 32), -1, dtype=torch.int32)
    valid = grammar.validate_tokens(list(drafts))
    advanced = 0
    for index in range(rows):
        if index > len(valid):
            break  # behind a draft that was cut: upstream leaves these rows full
        if not grammar.is_terminated():
            grammar.fill_bitmask(bitmask, index)
        if index < len(valid) and not grammar.is_terminated() and grammar.accept_tokens("r", [valid[index]]):
            advanced += 1
    if advanced:
        grammar.rollback(advanced)
    return bitmask.numpy()


def test_rows_equal_upstreams_with_every_kind_of_draft(words: WorkerAndRank) -> None:
    """Of all grammars in one step, whose rows are filled together."""
    rng = random.Random(7)
    filler = MaskFiller(64, VOCAB, words.backends)
    twins = [made(words, backend, *OF_EVERY_KIND[name]) for backend, name in TAKEN]
    for _ in range(4):
        sequences = [(one.ours(), one.upstream()) for one in twins]
        for _ in range(24):
            sequences = [one for one in sequences if not one[0].is_terminated()]
            if not sequences:
                break
            walks: list[GuidedRows[Any]] = []
            for ours, _ in sequences:
                drafts = _ahead(filler, ours, rng)
                if rng.random() < 0.4 and drafts:
                    drafts[rng.randrange(len(drafts))] = rng.randrange(3, VOCAB)  # most likely wrong
                walks.append(GuidedRows(ours, walks[-1].end if walks else 0, 1 + len(drafts), drafts))
            bitmask = filled(filler, walks)
            for walk, (ours, upstream) in zip(walks, sequences, strict=True):
                drafts = list(walk.drafts)
                assert walk.valid == len(upstream.validate_tokens(drafts))
                rows = bitmask[walk.row : walk.end]
                np.testing.assert_array_equal(rows, upstream_rows(upstream, drafts, len(rows)))
                choices = allowed(rows[0])
                token = EOS if EOS in choices and rng.random() < 0.3 else rng.choice(choices)
                assert ours.accept([token])
                assert upstream.accept_tokens("r", [token])
                assert ours.is_terminated() == upstream.is_terminated()


def _ahead(filler: MaskFiller, ours: Matcher, rng: random.Random) -> list[int]:
    """Return drafts for up to three positions ahead, of what may follow."""
    drafts: list[int] = []
    for _ in range(rng.randrange(4)):
        walk = GuidedRows(ours, 0, 1 + len(drafts), drafts)
        bitmask = filled(filler, [walk])
        choices = [token for token in allowed(bitmask[-1]) if token != EOS][:200]
        if not choices:
            break
        drafts.append(rng.choice(choices))
    return drafts


def test_a_row_without_choice_ends_its_sequence_or_forbids_the_draft_before_it(words: WorkerAndRank) -> None:
    matcher = made(words, "xgrammar", "regex", "ab").ours()
    now, later = GuidedRows(matcher, 0, 2, [4]), GuidedRows(matcher, 2, 3, [4, 5])
    now.valid, later.valid = 1, 2
    bitmask = np.full((5, VOCAB // 32), 1, dtype=np.int32)
    bitmask[0] = 0
    bitmask[4] = 0
    assert settle_dead_ends([now, later], bitmask) == [now]
    assert (bitmask[0:2] == -1).all()
    assert later.valid == 1
    assert (bitmask[4] == -1).all()
    assert (bitmask[2:4] == 1).all()


def test_a_wider_tokenizer_is_cut_to_the_model_and_a_narrower_one_forbids_the_rest(
    words: WorkerAndRank,
) -> None:
    for width, spare in ((VOCAB - 32, 0), (VOCAB + 64, 2)):
        matcher = made(words, "xgrammar", "regex", "[a-z]+").ours()
        plain = filled(MaskFiller(4, VOCAB, words.backends), [GuidedRows(matcher, 0, 1, [])])
        walk = GuidedRows(matcher, 0, 3, [EOS, 4])  # the first draft is wrong, so later rows are full
        bitmask = filled(MaskFiller(4, width, words.backends), [walk], width)
        assert bitmask.shape == (3, width // 32)
        shared = min(width, VOCAB) // 32
        np.testing.assert_array_equal(bitmask[0, :shared], plain[0, :shared])
        assert not bitmask[0, shared:].any()
        assert bitmask[0, shared:].size == spare
        assert (bitmask[1:] == -1).all()

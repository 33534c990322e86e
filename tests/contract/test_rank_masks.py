"""Masks of the ranks against the installed vLLM's own grammar classes, walked along the same tokens."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_contract.wire import Backend, Kind
from guided_engine.ranks.bitmasks import BitmaskBuffer, fill_batch, settle_dead_ends
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from support.grammars import OF_EVERY_KIND

# vLLM and torch warn of their own deprecations where they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

EOS = 1
VOCAB = 8192
# What each library takes of the common corpus.
TAKEN = [
    (backend, name)
    for backend in ("xgrammar", "guidance")
    for name in OF_EVERY_KIND
    if (backend, name) not in {("guidance", "EBNF"), ("xgrammar", "Lark")}
]


class Twins:
    """The same grammar for us and for vLLM."""

    def __init__(self, make_ours: Callable[[], Matcher], make_upstream: Callable[[], Any]) -> None:
        self.make_ours = make_ours
        self.make_upstream = make_upstream


class Words:
    """The tiny model's tokenizer, for both libraries; also what a BitmaskBuffer asks."""

    def __init__(self) -> None:
        model = str(tinymodel.models() / "tiny")
        pod = PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
        self.vocabulary = vocabulary.load(pod)
        self.backends = Backends(self.vocabulary)

    def twins(self, backend: Backend, kind: Kind, spec: str) -> Twins:
        import llguidance
        import xgrammar
        from vllm.v1.structured_output.backend_guidance import GuidanceGrammar
        from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

        library = self.backends[backend]
        text = library.compile(kind, spec).source()
        native = self.vocabulary.native(backend)
        if backend == "xgrammar":
            loaded = library.load(text)
            source = xgrammar.Grammar.deserialize_json(text)
            compiled = xgrammar.GrammarCompiler(native).compile_grammar(source)
            return Twins(
                lambda: loaded.matcher([EOS]),
                lambda: XgrammarGrammar(
                    VOCAB, xgrammar.GrammarMatcher(compiled, override_stop_tokens=[EOS]), compiled
                ),
            )
        loaded = library.load(text)
        prototype = llguidance.LLMatcher(native, text)
        return Twins(
            lambda: loaded.matcher([EOS]),
            lambda: GuidanceGrammar(prototype.deep_copy(), native, VOCAB),
        )


@pytest.fixture(scope="module")
def words() -> Words:
    return Words()


@pytest.fixture(params=TAKEN, ids=lambda pair: f"{pair[0]}, {pair[1]}")
def twins(request: pytest.FixtureRequest, words: Words) -> Twins:
    backend, name = request.param
    return words.twins(backend, *OF_EVERY_KIND[name])


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


def walked(ours: Matcher, rng: random.Random, steps: int) -> Iterator[list[int]]:
    """Yield the tokens of a random sentence, one step at a time, ending at the end of sequence."""
    bitmask = np.zeros((1, VOCAB // 32), dtype=np.int32)
    for _ in range(steps):
        if ours.is_terminated():
            return
        ours.fill(bitmask, 0)
        choices = allowed(bitmask[0])
        likely = [token for token in choices if token == EOS] or choices
        yield [rng.choice(likely if rng.random() < 0.3 else choices)]


def test_rows_equal_upstreams_with_every_kind_of_draft(twins: Twins, words: Words) -> None:
    rng = random.Random(7)
    buffer = BitmaskBuffer(64, VOCAB, words.backends)
    for _ in range(4):
        ours, upstream, scout = twins.make_ours(), twins.make_upstream(), twins.make_ours()
        for tokens in walked(ours, rng, 24):
            drafts = [rng.choice(ahead) for ahead in _ahead(scout, rng)]
            if rng.random() < 0.4 and drafts:
                drafts[rng.randrange(len(drafts))] = rng.randrange(3, VOCAB)  # most likely wrong
            walk = GuidedRows(ours, 0, 1 + len(drafts), drafts)
            bitmask, _ = buffer.fill([walk], walk.end)
            expected = upstream_rows(upstream, drafts, 1 + len(drafts))
            assert walk.valid == len(upstream.validate_tokens(list(drafts)))
            np.testing.assert_array_equal(bitmask, expected)
            for matcher in (ours, scout):
                assert matcher.accept(tokens)
            assert upstream.accept_tokens("r", tokens)
        assert ours.is_terminated() == upstream.is_terminated()


def _ahead(scout: Matcher, rng: random.Random) -> list[list[int]]:
    """Return, for up to three positions ahead, what may follow; the scout's state stays."""
    bitmask = np.zeros((1, VOCAB // 32), dtype=np.int32)
    found: list[list[int]] = []
    native: Any = scout.native  # type: ignore[attr-defined]
    advanced = 0
    for _ in range(rng.randrange(4)):
        if native.is_stopped() if hasattr(native, "is_stopped") else native.is_terminated():
            break
        scout.fill(bitmask, 0)
        choices = [token for token in allowed(bitmask[0]) if token != EOS][:200]
        if not choices:
            break
        token = rng.choice(choices)
        consumed = (
            native.consume_token(token) if hasattr(native, "consume_token") else native.accept_token(token)
        )
        assert consumed
        advanced += 1
        found.append([token])
    if advanced:
        native.rollback(advanced)
    return found


def test_all_rows_of_a_step_equal_rows_filled_one_by_one(words: Words) -> None:
    made = [words.twins(backend, *OF_EVERY_KIND[name]).make_ours() for backend, name in TAKEN]
    buffer = BitmaskBuffer(64, VOCAB, words.backends)
    alone = [buffer.fill([GuidedRows(matcher, 0, 1, [])], 1)[0].copy() for matcher in made]
    walks = [GuidedRows(matcher, row, 1, []) for row, matcher in enumerate(made)]
    together, _ = buffer.fill(walks, walks[-1].end)
    np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
class TestEachBackend:
    def test_sampled_tokens_behind_the_end_are_ignored(self, words: Words, backend: Backend) -> None:
        matcher = words.twins(backend, "regex", "a").make_ours()
        token = words.vocabulary.tokens.index(b"a")
        assert matcher.accept([token, EOS, 77, 78])
        assert matcher.is_terminated()
        assert matcher.accept([79])

    def test_no_draft_is_valid_after_the_end_and_rows_are_full(self, words: Words, backend: Backend) -> None:
        matcher = words.twins(backend, "regex", "a").make_ours()
        token = words.vocabulary.tokens.index(b"a")
        buffer = BitmaskBuffer(8, VOCAB, words.backends)
        walk = GuidedRows(matcher, 0, 4, [token, EOS, 5])
        bitmask, _ = buffer.fill([walk], walk.end)
        assert walk.valid == 2
        assert allowed(bitmask[0])[:1] == [token]
        assert allowed(bitmask[1]) == [EOS]
        assert (bitmask[2:] == -1).all()
        assert matcher.valid_prefix([token, EOS]) == 2  # the state stayed


class Broken:
    """A matcher whose native side raises."""

    native = None

    def is_terminated(self) -> bool:
        return False


def test_one_broken_matcher_leaves_the_others_their_masks(words: Words) -> None:
    good = words.twins("xgrammar", "regex", "ab").make_ours()
    walks: list[GuidedRows[Any]] = [
        GuidedRows(good, 0, 1, []),
        GuidedRows(Broken(), 1, 2, [3]),
        GuidedRows(good, 3, 1, []),
    ]  # type: ignore[type-var]
    bitmask = np.zeros((4, VOCAB // 32), dtype=np.int32)

    def fill(these: Any, target: np.ndarray) -> None:
        for walk in these:
            if walk.matcher is not good:
                raise RuntimeError("native fault")
            good.fill(target, walk.row)
            walk.filled = 1

    fill_batch(walks, bitmask, fill)
    assert [walk.error is None for walk in walks] == [True, False, True]
    assert (bitmask[1:3] == -1).all()
    np.testing.assert_array_equal(bitmask[0], bitmask[3])
    assert not (bitmask[0] == -1).all()


def test_a_row_without_choice_ends_its_sequence_or_forbids_the_draft_before_it(words: Words) -> None:
    matcher = words.twins("xgrammar", "regex", "ab").make_ours()
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


def test_a_wider_tokenizer_is_cut_to_the_model_and_a_narrower_one_forbids_the_rest(words: Words) -> None:
    for width, spare in ((VOCAB - 32, 0), (VOCAB + 64, 2)):
        matcher = words.twins("xgrammar", "regex", "[a-z]+").make_ours()
        plain, _ = BitmaskBuffer(4, VOCAB, words.backends).fill([GuidedRows(matcher, 0, 1, [])], 1)
        walk = GuidedRows(matcher, 0, 3, [EOS, 4])  # the first draft is wrong, so later rows are full
        bitmask, _ = BitmaskBuffer(4, width, words.backends).fill([walk], walk.end)
        assert bitmask.shape == (3, width // 32)
        shared = min(width, VOCAB) // 32
        np.testing.assert_array_equal(bitmask[0, :shared], plain[0, :shared])
        assert not bitmask[0, shared:].any()
        assert bitmask[0, shared:].size == spare
        assert (bitmask[1:] == -1).all()

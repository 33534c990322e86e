"""What holds for every library's matcher and for the registry, shown with the backend that has no library."""

import json
from typing import Any, get_args

import numpy as np
import pytest

from guided_contract import backends
from guided_contract.wire import Kind
from guided_engine.ranks.bitmasks import fill_batch
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar import registry
from guided_grammar.backend import BackendError, Library, Threads, one_line
from guided_grammar.counted_text import CountedText
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask, allows, words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Job
from support.fake_backend import FakeLibrary, FakeTokenizer

TOKENS = [b"", b"a", b"b", b"ab", b"c", *[b""] * 30, b"<end>"]
END = len(TOKENS) - 1
BACKEND = FakeLibrary().open(FakeTokenizer.of(TOKENS, END), Threads())
A, B, AB, C = range(1, 5)


def matcher(*texts: str) -> Matcher:
    return BACKEND.compile("choice", json.dumps(texts)).matcher()


def rows(count: int) -> Bitmask:
    return np.full((count, words(len(TOKENS))), -1, dtype=np.int32)


def allowed(row: Bitmask) -> set[int]:
    return {token for token in range(len(TOKENS)) if allows(row, token)}


class AtMost:
    """Holds beside a grammar: no more than so many tokens, the end included."""

    start = 0

    def __init__(self, tokens: int) -> None:
        self._most = tokens

    def advance(self, seen: int, _token: int) -> int | None:
        return seen + 1 if seen < self._most else None

    def restrict(self, row: Bitmask, seen: int) -> None:
        if seen == self._most:
            row[:] = 0


def test_a_text_is_followed_to_its_end_and_free_behind_it() -> None:
    ours = matcher("ab", "abc")
    assert ours.accept([A])
    assert not ours.is_terminated()
    assert ours.accept([B, END, C])  # what comes behind the end is nobody's
    assert ours.is_terminated()
    assert ours.accept([C])
    assert ours.valid_prefix([A]) == 0

    ours.reset()
    assert not ours.accept([B])
    assert not ours.is_terminated()


def test_an_end_that_is_not_allowed_ends_nothing() -> None:
    ours = matcher("ab")
    assert not ours.accept([A, END])
    assert not ours.is_terminated()


@pytest.mark.parametrize(
    ("drafts", "valid"),
    [([], 0), ([A, B, END, C], 3), ([AB, C, END], 3), ([A, C], 1), ([B], 0), ([A, END], 1)],
)
def test_drafts_are_allowed_up_to_the_first_that_is_not(drafts: list[int], valid: int) -> None:
    ours = matcher("ab", "abc")
    assert ours.valid_prefix(drafts) == valid
    row = rows(1)
    ours.fill(row, 0)
    assert allowed(row[0]) == {A, AB}  # the state stayed


def test_what_is_counted_beside_a_grammar_holds_in_all_that_a_matcher_does() -> None:
    ours = matcher("abc")
    ours.counted = CountedText(AtMost(1))
    assert ours.valid_prefix([A, B, C]) == 1
    assert ours.accept([A])
    row = rows(1)
    ours.fill(row, 0)
    assert not row.any()
    assert not ours.accept([B])

    ours.reset()
    assert ours.accept([A])


def test_a_walk_is_filled_as_far_as_its_drafts_are_allowed() -> None:
    walks = [GuidedRows(matcher("ab", "abc"), 0, 4, [A, B, END]), GuidedRows(matcher("c"), 4, 3, [A, C])]
    bitmask = rows(7)
    fill_batch(walks, bitmask, BACKEND.fill)

    assert [allowed(row) for row in bitmask[:3]] == [{A, AB}, {B}, {C, END}]
    assert (bitmask[3] == -1).all()
    assert (walks[0].valid, walks[0].filled) == (3, 3)
    assert allowed(bitmask[4]) == {C}
    assert (bitmask[5:] == -1).all()
    assert (walks[1].valid, walks[1].filled) == (0, 1)


def test_what_no_backend_takes_is_refused_in_words() -> None:
    with pytest.raises(BackendError, match="choices only"):
        BACKEND.compile("regex", "a")
    assert one_line("[12:00:00] /project/x.cc:1: not\n  this") == "not this"


class Forms:
    """A tokenizer that the fake alone takes."""

    def native(self, name: str) -> Any:
        if name != "fake":
            raise BackendError("not this tokenizer")
        return FakeTokenizer.of(TOKENS, END)


def test_a_third_backend_is_a_module_and_a_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles, proves and loads; the wire's and the CRD's enums are made of the table's names."""
    entry = backends.Entry("fake", "support.fake_backend", "pluggy")
    monkeypatch.setitem(backends.NAMES, "Fake", "fake")
    monkeypatch.setitem(backends._BY_NAME, "fake", entry)
    words = Vocabulary(len(TOKENS), Forms(), {}, TOKENS)
    job = Job(key="k", kind="choice", spec='["ab", "abc"]', backends=["fake"], timeout_s=1, memory_bytes=1)

    done = Compiler(Backends(words), words).run(job)

    ranks = LoadedGrammars(Backends(words))
    assert not ranks.load(load_of("k", done)).error
    row = rows(1)
    ranks.matcher("k", None).fill(row, 0)
    assert allowed(row[0]) == {A, AB}


def test_every_library_of_the_table_is_there() -> None:
    for name in backends.NAMES.values():
        library: Library = registry.library(name)
        assert library.lacks("json", {"type": "boolean"}) is None
    first = [kind for name in backends.NAMES.values() for kind in registry.library(name).first_for]
    assert sorted(first) == sorted(get_args(Kind))
    with pytest.raises(KeyError):
        registry.library("outlines")

"""What holds for every library's matcher and for the registry, shown with the backend that has no library."""

import json
from typing import Any, get_args

import numpy as np
import pytest

from guided_contract import backends
from guided_contract.wire import Kind
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar import registry
from guided_grammar.backend import BackendError, Library, Threads, one_line
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

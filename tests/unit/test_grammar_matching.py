"""The table of grammar libraries, and a backend more that has no library."""

from typing import Any, get_args

import numpy as np
import pytest

from guided_contract import backends
from guided_contract.wire import Kind
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_grammar import registry
from guided_grammar.backend import BackendError, Library
from guided_grammar.masks import allows, words
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Job
from support.fake_backend import FakeTokenizer

TOKENS = [b"", b"a", b"b", b"ab", b"c", *[b""] * 30, b"<end>"]
END = len(TOKENS) - 1


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
    vocabulary = Vocabulary(len(TOKENS), Forms(), {}, TOKENS)
    job = Job(key="k", kind="choice", spec='["ab", "abc"]', backends=["fake"], timeout_s=1, memory_bytes=1)

    done = Compiler(Backends(vocabulary), vocabulary).run(job)

    ranks = LoadedGrammars(Backends(vocabulary))
    assert not ranks.load(load_of("k", done)).error
    row = np.full((1, words(len(TOKENS))), -1, dtype=np.int32)
    ranks.matcher("k", None).fill(row, 0)
    assert [TOKENS[token] for token in range(len(TOKENS)) if allows(row[0], token)] == [b"a", b"ab"]


def test_every_library_of_the_table_is_there() -> None:
    for name in backends.NAMES.values():
        library: Library = registry.library(name)
        assert library.lacks("json", {"type": "boolean"}) is None
    first = [kind for name in backends.NAMES.values() for kind in registry.library(name).first_for]
    assert sorted(first) == sorted(get_args(Kind))
    with pytest.raises(KeyError):
        registry.library("outlines")

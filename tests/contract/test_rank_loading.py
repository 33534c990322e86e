"""Loading grammars on a rank, and a rank's signs of life."""

import random

import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.backends import Backend
from guided_contract.config import PodConfig
from guided_contract.wire import Load, Unload
from guided_engine.ranks.loaded_grammars import LoadedGrammars, LoadError
from guided_grammar.backend import BackendError
from guided_grammar.masks import words as mask_words
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from support import grammars


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    model = str(tinymodel.models() / "tiny")
    return vocabulary.load(
        PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
    )


def xgrammar_load(words: Vocabulary, key: str = "k") -> Load:
    compiled = Backends(words)["xgrammar"].compile("regex", "ab")
    return Load(key=key, backend="xgrammar", spec=compiled.source())


def guidance_load(words: Vocabulary, key: str = "k") -> Load:
    compiled = Backends(words)["guidance"].compile("regex", "ab")
    return Load(key=key, backend="guidance", spec=compiled.source())


class TestPrototypes:
    def test_what_would_fill_a_rank_is_not_compiled_there(
        self, words: Vocabulary, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("guided_grammar.xgrammar.backend._MOST_BYTES", 1 << 10)
        with pytest.raises(BackendError, match="the limit is"):
            Backends(words)["xgrammar"].compile("regex", "(ab|cd){1,40}")

    @pytest.mark.parametrize("name", ["json", "json_object", "regex", "choice", "EBNF"])
    def test_what_is_compiled_again_is_what_the_worker_compiled(self, words: Vocabulary, name: str) -> None:
        kind, spec = grammars.OF_EVERY_KIND[name]
        compiled = Backends(words)["xgrammar"].compile(kind, spec)
        loaded_grammars = LoadedGrammars(Backends(words))
        assert not loaded_grammars.load(Load(key="t", backend="xgrammar", spec=compiled.source())).error

        one, other = loaded_grammars.matcher("t", None), compiled.matcher()
        masks = [np.full((1, mask_words(compiled.vocab_size)), -1, dtype=np.int32) for _ in range(2)]
        chooser = random.Random(name)
        for _ in range(40):
            for matcher, mask in zip((one, other), masks, strict=True):
                matcher.fill(mask, 0)
            assert np.array_equal(*masks)
            allowed = np.flatnonzero(np.unpackbits(masks[0].view(np.uint8), bitorder="little"))
            token = int(chooser.choice(allowed))
            assert one.accept([token])
            assert other.accept([token])
            if one.is_terminated():
                break
        assert one.is_terminated() == other.is_terminated()

    def test_another_grammar_of_a_key_takes_its_place(self, words: Vocabulary) -> None:
        """The proof refused the first; a service that is asked again after a crash may choose otherwise."""
        loaded_grammars = LoadedGrammars(Backends(words))
        first, token = guidance_load(words, "k"), words.tokens.index(b"a")
        other = Backends(words)["guidance"].compile("regex", "ba")
        assert not loaded_grammars.load(first).error
        old = loaded_grammars.matcher("k", [1])
        assert not loaded_grammars.load(Load(key="k", backend="guidance", spec=other.source())).error
        assert len(loaded_grammars) == 1
        assert not loaded_grammars.matcher("k", [1]).accept([token])
        assert old.accept([token]), "sequences that have begun keep theirs"

    def test_unloading_leaves_running_matchers_alone(self, words: Vocabulary) -> None:
        loaded_grammars = LoadedGrammars(Backends(words))
        loaded_grammars.load(xgrammar_load(words))
        matcher = loaded_grammars.matcher("k", [1])
        loaded_grammars.unload(Unload(key="k"))
        loaded_grammars.unload(Unload(key="never loaded"))
        assert matcher.accept([words.tokens.index(b"a")])
        with pytest.raises(LoadError, match="not loaded"):
            loaded_grammars.matcher("k", [1])

    @pytest.mark.parametrize("backend", ["guidance", "xgrammar"])
    def test_a_fault_is_told_and_keeps_nothing(self, words: Vocabulary, backend: Backend) -> None:
        loaded_grammars = LoadedGrammars(Backends(words))
        assert loaded_grammars.load(Load(key="k", backend=backend, spec="this is no grammar")).error
        assert len(loaded_grammars) == 0

    def test_orphans_stay_until_the_next_service_has_gone(self, words: Vocabulary) -> None:
        loaded_grammars = LoadedGrammars(Backends(words))
        loaded_grammars.load(xgrammar_load(words, "old"))
        loaded_grammars.load(xgrammar_load(words, "kept"))
        loaded_grammars.orphan()
        loaded_grammars.matcher("old", [1])  # an admitted request starts after the service died
        loaded_grammars.load(xgrammar_load(words, "kept"))  # the new service wants this one
        loaded_grammars.load(xgrammar_load(words, "new"))
        assert len(loaded_grammars) == 3
        for _ in range(2):  # the second one had loaded nothing
            loaded_grammars.orphan()
            assert len(loaded_grammars) == 2
        loaded_grammars.matcher("kept", [1])
        loaded_grammars.matcher("new", [1])

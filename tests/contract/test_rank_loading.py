"""Loading grammars on a rank, and a rank's signs of life."""

import functools

import pytest

from guided_contract.backends import Backend
from guided_contract.wire import Load, Unload
from guided_engine.matchers.loaded_grammars import LoadedGrammars, LoadError
from guided_engine.matchers.texts import Texts
from guided_grammar.backend import BackendError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from support.worker_and_rank import WorkerAndRank


@functools.cache
def words() -> Vocabulary:
    return WorkerAndRank.of("tiny").words


def load_of(key: str = "k", backend: Backend = "xgrammar", regex: str = "ab") -> Load:
    return Load(key=key, backend=backend, spec=Backends(words())[backend].compile("regex", regex).source())


@pytest.fixture
def loaded() -> LoadedGrammars:
    return LoadedGrammars(Backends(words()))


def test_what_would_fill_a_rank_is_not_compiled_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guided_grammar.xgrammar.backend._MOST_BYTES", 1 << 10)
    with pytest.raises(BackendError, match="the limit is"):
        Backends(words())["xgrammar"].compile("regex", "(ab|cd){1,40}")


def test_another_grammar_of_a_key_takes_its_place(loaded: LoadedGrammars) -> None:
    """The proof refused the first; a service that is asked again after a crash may choose otherwise."""
    token = words().tokens.index(b"a")
    assert not loaded.load(load_of("k", "guidance")).error
    old = loaded.matcher("k", [1])
    assert not loaded.load(load_of("k", "guidance", "ba")).error
    assert len(loaded) == 1
    assert not loaded.matcher("k", [1]).accept([token])
    assert old.accept([token]), "sequences that have begun keep theirs"


def test_unloading_leaves_running_matchers_alone(loaded: LoadedGrammars) -> None:
    loaded.load(load_of())
    matcher = loaded.matcher("k", [1])
    loaded.unload(Unload(key="k"))
    loaded.unload(Unload(key="never loaded"))
    assert matcher.accept([words().tokens.index(b"a")])
    with pytest.raises(LoadError, match="not loaded"):
        loaded.matcher("k", [1])


@pytest.mark.parametrize("backend", ["guidance", "xgrammar"])
def test_a_fault_is_told_and_keeps_nothing(loaded: LoadedGrammars, backend: Backend) -> None:
    assert loaded.load(Load(key="k", backend=backend, spec="this is no grammar")).error
    assert len(loaded) == 0


def test_orphans_stay_until_the_next_service_has_gone() -> None:
    texts = Texts()
    texts.put(load_of("old"))
    texts.put(load_of("kept"))
    assert not texts.orphan()
    assert texts.get("old")  # an admitted request starts after the service died
    texts.put(load_of("kept"))  # the new service wants this one
    texts.put(load_of("new"))
    assert len(texts) == 3
    assert texts.orphan() == {"old"}
    assert not texts.orphan()  # the second one had loaded nothing
    assert texts.get("kept")
    assert texts.get("new")
    assert len(texts) == 2

"""A compile during which a library says that it ignores something is a refusal, not a line in a log."""

import os
import warnings
from collections.abc import Iterator

import pytest

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.compile import heard, library_texts
from support.worker_and_rank import WorkerAndRank


def test_the_other_library_serves_what_xgrammar_says_that_it_ignores(served: WorkerAndRank) -> None:
    refusal = served.refusal("regex", r"a\_b", "xgrammar")
    assert refusal is not None
    assert (refusal.code, refusal.path) == ("grammar_unsupported", None)
    assert len(refusal.message) < 500
    assert served.compiled("regex", r"a\_b").backend == "guidance"


def test_xgrammars_warning_is_heard_where_no_rule_knows_it(
    served: WorkerAndRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words themselves, of C++, on the descriptor; and nothing of them stays there."""
    monkeypatch.setattr(library_texts, "_meant", lambda *_: {"type": "string", "pattern": "^a(?=b)"})
    before = os.fstat(2).st_size
    with pytest.raises(GuidedError, match="Lookahead assertion is not supported and is ignored") as refusal:
        served.compiled("json", {"type": "string", "pattern": "^a$"}, "xgrammar")
    assert refusal.value.code == "grammar_unsupported"
    assert os.fstat(2).st_size == before


def test_llguidances_warning_is_heard(served: WorkerAndRank, monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = {"x-guidance": {"lenient": True}, "type": "array", "contains": {}}
    monkeypatch.setattr(library_texts, "_meant", lambda *_: lenient)
    with pytest.raises(GuidedError, match="contains") as refusal:
        served.compiled("json", {"type": "array"}, "guidance")
    assert refusal.value.code == "grammar_unsupported"


@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning])
def test_a_warning_of_pythons_is_heard(category: type[Warning]) -> None:
    with heard.listening() as said:
        warnings.warn("it leaves the tail out", category, stacklevel=1)
    assert said == ["it leaves the tail out"]


@pytest.fixture
def _pipe() -> Iterator[None]:
    """Standard error as it is outside a worker."""
    kept = os.dup(2)
    reads, writes = os.pipe()
    os.dup2(writes, 2)
    yield
    os.dup2(kept, 2)
    for descriptor in (kept, reads, writes):
        os.close(descriptor)


@pytest.mark.usefixtures("_pipe")
def test_it_is_heard_where_standard_error_is_no_file() -> None:
    with heard.listening() as said:
        os.write(2, b"a is ignored\n")
    assert said == ["a is ignored"]


def test_what_is_said_while_a_library_raises_stays_a_workers_last_words() -> None:
    said: list[list[str]] = []

    def dying() -> None:
        with heard.listening() as heard_words:
            said.append(heard_words)
            os.write(2, b"terminate called after throwing std::bad_alloc\n")
            raise MemoryError

    with pytest.raises(MemoryError):
        dying()
    assert said == [[]]

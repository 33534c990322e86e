"""The schemas that `make bench-grammar` measures."""

from grammarbench import corpus


def test_the_corpus_is_the_one_that_was_committed() -> None:
    entries = corpus.corpus(None)

    assert corpus.digest(entries) == corpus.DIGEST
    assert len(entries) >= 500
    assert sum(entry.source == "Kubernetes" for entry in entries) >= len(entries) / 2
    assert len({entry.text for entry in entries}) == len(entries)

"""The schemas that `make bench-grammar` measures."""

import json

from grammarbench import corpus

from guided_grammar.json_schema import subschemas


def test_the_corpus_is_the_one_that_was_committed() -> None:
    entries = corpus.corpus(None)

    assert corpus.digest(entries) == corpus.DIGEST
    assert len(entries) >= 600
    assert sum(entry.source == "pydantic" for entry in entries) >= 200
    assert len({entry.text for entry in entries}) == len(entries)
    schemas = [json.loads(entry.text) for entry in entries if entry.kind == "json"]
    keywords = {key for schema in schemas for part in subschemas.within(schema) for key in part}
    assert len(keywords) >= 38

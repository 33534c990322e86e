"""What a refusal says: a code for what is broken and one for what a library cannot do, where, and why.

The rows of refusals.jsonl, through the whole worker, by real libraries; whether a schema is valid, jsonschema
says.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from guided_contract.backends import NAMES
from guided_contract.errors import GuidedError
from guided_sidecar.grammar.compile import library_texts, worker
from guided_sidecar.grammar.worker_messages import Failed
from support import grammars
from support.worker_and_rank import WorkerAndRank


class Row(NamedTuple):
    """A line of the table."""

    kind: Any
    grammar: Any
    code: str | None = None
    path: str | None = None
    words: str = ""
    named: Any = None


# Too long for a line.
MANY = {f"p{number}": {"type": "integer"} for number in range(60)}
LONG: list[Row] = [
    Row("json", {"properties": {**MANY, "q": {"pattern": "a)"}}}, "invalid", "$.properties.q.pattern"),
    Row("json", {"properties": {**MANY, "q": {"properties": MANY | {"r": {"items": {"pattern": r"\B"}}}}}},
        "unsupported", "$.properties.q.properties.r.items.pattern"),
    Row("json", grammars.references_in_a_row(200), "unsupported", "$.$defs.p0"),
    Row("json", "[" * 3000 + "]" * 3000, "too_large", "$", "too deep"),
    Row("json", {"type": "integer", "minimum": int("1" * 4300)}),
    Row("json", '{"minimum": %s}' % ("9" * 5000), "invalid", "$", "out of range"),
    Row("json", {"type": "string", "pattern": "^a{%s}$" % ("1" * 4301)}, "unsupported", "$.pattern"),
    Row("json", {"type": "string", "pattern": "(" + "z" * 60_000}),
    Row("json", {"properties": {f"p{number}": {"type": 5} for number in range(9000)}}),
    Row("json", {"properties": {"x" * 100_000: {"type": "strng"}}}),
    Row("json", {"type": "y" * 100_000}, "invalid", "$.type"),
    Row("json", {"$ref": "#/" + "r" * 100_000}, "invalid", "$.$ref"),
    Row("regex", "[" * 50_000),
    Row("grammar", "start: a0\n" + "\n".join(f"a{n}: a{n + 1}" for n in range(5000)), "too_large"),
    Row("structural_tag", {"structures": [{"begin": "<" * 90_000, "schema": {"type": 1}, "end": "e"}],
                           "triggers": ["<"]}),
]  # fmt: skip
LINES = Path(__file__).with_name("refusals.jsonl").read_text().splitlines()
TABLE = [Row(*json.loads(line)) for line in LINES if not line.startswith("#")]
ROWS = [*TABLE, *LONG]
OWN_FAULT = ("invalid", "too_large", "unsupported", "dead_end", "slow")
# Python's, C++'s and Rust's words, which tell an author nothing.
OURS_ALONE = re.compile(
    r"Error\b|has no attribute|Traceback|\bsys\.|NoneType|\bdict\b|\.cc:|\.py\b|(?<!')\bNone\b|SearchRegex"
    r"|Input tag|\^ error|digits: 9|Some\(|Unsatisfiable|\(And|anyOf is"
)


def failure(served: WorkerAndRank, row: Row, named: Any = None) -> Failed | None:
    """Return a worker's refusal, which is its author's own fault, and says so in words for its author."""
    job = served.job(row.kind, row.grammar, *([named] if named else ()), named=named)
    outcome = worker._outcome(served.compiler, job, lambda _done: None)
    if not isinstance(outcome, Failed):
        return None
    assert outcome.code.removeprefix("grammar_") in OWN_FAULT, outcome
    assert outcome.message.strip()
    assert not OURS_ALONE.search(outcome.message), outcome.message
    assert len(outcome.message) <= 800
    assert len(outcome.path or "") <= 300
    assert "\n" not in (outcome.path or "")
    return outcome


@pytest.mark.parametrize("row", ROWS, ids=lambda row: json.dumps(row[:2])[:70])
def test_a_refusal_has_a_code_a_path_and_words_for_its_author(served: WorkerAndRank, row: Row) -> None:
    """And no library alone calls a valid text broken, or a broken one unsupported."""
    told = failure(served, row, row.named)
    alone = [failure(served, row, named) for named in (NAMES.values() if row in TABLE else ())]
    if row.code is None:
        return
    assert told is not None
    assert (told.code, told.path) == (f"grammar_{row.code}", row.path), told.message
    assert row.words in told.message
    assert told.message.startswith("" if row.path in {None, "$"} else f"{row.path}: ")
    if row.kind in {"json", "regex"}:
        assert {one.code == "grammar_invalid" for one in alone if one} <= {row.code == "invalid"}, alone


def test_what_jsonschema_calls_broken_is() -> None:
    for row in ROWS:
        # What keywords of an unknown dialect are worth nobody says.
        if row.kind == "json" and row.code in {"unsupported", "dead_end"} and row.path != "$.$schema":
            judge = jsonschema.validators.validator_for(row.grammar, jsonschema.Draft202012Validator)
            assert judge(judge.META_SCHEMA).is_valid(row.grammar), row


# What is too wide at the beginning of a text is not within a tag.
VALUES = [row for row in ROWS if row.kind == "json" and row.path and not isinstance(row.grammar, str)]
IN_TAGS = [row for row in VALUES if "always present" not in row.words]


@pytest.mark.parametrize("row", IN_TAGS[::9])
def test_in_a_tag_the_path_is_the_tags(served: WorkerAndRank, row: Row) -> None:
    tag = {"structures": [{"begin": "<f>", "schema": row.grammar, "end": "<"}], "triggers": ["<f"]}
    told = failure(served, Row("structural_tag", tag))
    assert told is not None
    assert (told.path or "").startswith("$.structures[0].schema"), told
    assert (told.code == "grammar_invalid") == (row.code == "invalid")


def test_a_hundred_references_in_a_row_are_served(served: WorkerAndRank) -> None:
    assert served.refusal("json", grammars.references_in_a_row(100)) is None


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

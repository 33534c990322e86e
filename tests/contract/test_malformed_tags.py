"""What the models of structural tags refuse the library does not take, nor what it would not enforce we.

What is said of malformed ones: test_grammar_refusals.py.
"""

import copy
import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import xgrammar

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.schema import tag_words
from support.worker_and_rank import WorkerAndRank

NUMBER = {"type": "regex", "pattern": "[0-9]+"}
TAG = {"begin": "<a>", "content": NUMBER, "end": "</a>"}
AB = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def _format(value: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": value}


def test_each_fault_of_a_tag_is_told() -> None:
    with pytest.raises(GuidedError) as refused:
        tag_words.check(
            _format({"type": "sequence", "elements": [{"type": "regex"}, {"type": "star", "x": 1}]})
        )
    assert [line.partition(":")[0] for line in refused.value.message.split("\n")] == [
        "$.format.elements[0].pattern",
        "$.format.elements[1].content",
        "$.format.elements[1].x",
    ]


# What each format may hold; drawn tags are made of these by taking out, or putting in, a part.
FORMS: list[Any] = [
    {"type": "const_string", "value": "x"},
    {"type": "json_schema", "json_schema": {"type": "integer"}, "style": "json", "max_whitespace_cnt": 2},
    {"type": "any_text", "excludes": ["z"], "max_tokens": 5, "max_chars": 6},
    {"type": "grammar", "grammar": 'root ::= "a"'},
    {"type": "tag", **TAG, "end": ["a", "b"]},
    {"type": "or", "elements": [NUMBER, {"type": "tag", **TAG}]},
    {"type": "triggered_tags", "triggers": ["<a"], "tags": [TAG], "at_least_one": True, "excludes": ["q"]},
    {"type": "tags_with_separator", "tags": [TAG], "separator": ",", "stop_after_first": False},
    {"type": "repeat", "min": 1, "max": 3, "content": NUMBER},
    {"type": "dispatch", "rules": [["x", NUMBER]], "loop": True, "excludes": ["p"]},
]
JUNK: list[Any] = [
    *(None, 5, 1.5, -1, True, "", "x", "1", [], [""], ["x"], {}, {"type": "nope"}, [5], [None], [[]])
]


def test_what_the_models_refuse_the_library_refuses_too() -> None:
    """But for a format without a type, which it guesses, and a style that it ignores."""
    seed = int(os.environ.get("SEED") or 1)
    draw = random.Random(seed)
    for _ in range(600):
        form = _drawn(draw)
        error = _fault(form)
        if error is None or error.code != "grammar_invalid":
            continue
        if "type is missing" in error.message or error.message.endswith("'deepseek_v4_1_xml'"):
            continue
        assert not _is_taken_by_the_library(form), f"SEED={seed}: {form}: {error.message}"


def _is_taken_by_the_library(form: Any) -> bool:
    try:
        xgrammar.Grammar.from_structural_tag(json.dumps(_format(form)))
    except (RuntimeError, ValueError, xgrammar.InvalidStructuralTagError):
        return False
    return True


def _drawn(draw: random.Random) -> Any:
    form = copy.deepcopy(draw.choice(FORMS))
    holder, key = draw.choice(list(_slots(form)))
    if draw.random() < 1 / 3:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(draw.choice(JUNK))
    return form


def _slots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in a form, but for those in a schema."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(part, dict | list) and key != "json_schema":
            yield from _slots(part)


def _fault(form: Any) -> GuidedError | None:
    try:
        tag_words.check(_format(form))
    except GuidedError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("trigger", "begin", "excluded", "end", "path"),
    [
        ("<tool", "<tool_call>", "<tool_response>", "]", "$.format.content.triggers[0]"),
        ("<tool", "<tool_call>", "x", "<tool_response>", "$.format.content.triggers[0]"),
        ("<", "<b>", "</think>", "]", None),
        ("<tool_call>", "<tool_call>", "<tool_response>", "]", None),
    ],
)
def test_a_trigger_that_would_force_nothing_is_refused(  # noqa: PLR0913, PLR0917 - a table
    served: WorkerAndRank, trigger: str, begin: str, excluded: str, end: str, path: str | None
) -> None:
    """Where a tag begins as an excluded text does, for longer than the trigger, xgrammar takes any text."""
    inner = {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": [{"begin": begin, "content": {"type": "json_schema", "json_schema": AB}, "end": "!"}],
        "excludes": [excluded],
    }
    tag = _format({"type": "tag", "begin": "[", "content": inner, "end": end})
    matcher = served.backends["xgrammar"].compile("structural_tag", json.dumps(tag)).matcher()
    is_taken = matcher.accept(served.spelled(f"[{begin}zz"))
    assert is_taken == (path is not None), "what the library does"
    if path is None:
        tag_words.check(tag)
        return
    with pytest.raises(GuidedError, match="is not supported together with") as refused:
        tag_words.check(tag)
    assert refused.value.path == path


@pytest.mark.parametrize(("excluded", "path"), [("<fax", "$.format.rules[0][0]"), ("<g", None)])
def test_a_rule_that_would_force_nothing_is_refused(
    served: WorkerAndRank, excluded: str, path: str | None
) -> None:
    form = {
        "type": "dispatch",
        "rules": [["<f", {"type": "const_string", "value": "abc"}]],
        "excludes": [excluded],
    }
    matcher = served.backends["xgrammar"].compile("structural_tag", json.dumps(_format(form))).matcher()
    is_taken = matcher.accept(served.spelled("<fazz"))
    assert is_taken == (path is not None), "what the library does"
    error = _fault(form)
    assert (error and error.path) == path

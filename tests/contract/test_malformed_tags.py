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
    refused = _fault({"type": "sequence", "elements": [{"type": "regex"}, {"type": "star", "x": 1}]})
    assert refused is not None
    told = [line.partition(":")[0] for line in refused.message.split("\n")]
    assert told == [f"$.format.elements[{one}" for one in ("0].pattern", "1].content", "1].x")]


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
        form = copy.deepcopy(draw.choice(FORMS))
        holder, key = draw.choice(list(_slots(form)))
        if draw.random() < 1 / 3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw.choice(JUNK))
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


def _triggered(trigger: str, begin: str, excluded: str, end: str) -> Any:
    content = {"type": "json_schema", "json_schema": AB}
    tags = [{"begin": begin, "content": content, "end": "!"}]
    inner = {"type": "triggered_tags", "triggers": [trigger], "tags": tags, "excludes": [excluded]}
    return {"type": "tag", "begin": "[", "content": inner, "end": end}


def _ruled(excluded: str) -> Any:
    rule = ["<f", {"type": "const_string", "value": "abc"}]
    return {"type": "dispatch", "rules": [rule], "excludes": [excluded]}


AT = "$.format.content.triggers[0]"


@pytest.mark.parametrize(
    ("form", "text", "path"),
    [
        (_triggered("<tool", "<tool_call>", "<tool_response>", "]"), "[<tool_call>zz", AT),
        (_triggered("<tool", "<tool_call>", "x", "<tool_response>"), "[<tool_call>zz", AT),
        (_triggered("<", "<b>", "</think>", "]"), "[<b>zz", None),
        (_triggered("<tool_call>", "<tool_call>", "<tool_response>", "]"), "[<tool_call>zz", None),
        (_ruled("<fax"), "<fazz", "$.format.rules[0][0]"),
        (_ruled("<g"), "<fazz", None),
    ],
)
def test_what_would_force_nothing_is_refused(
    served: WorkerAndRank, form: Any, text: str, path: str | None
) -> None:
    """Where a tag begins as an excluded text does, for longer than the trigger, xgrammar takes any text."""
    matcher = served.backends["xgrammar"].compile("structural_tag", json.dumps(_format(form))).matcher()
    assert matcher.accept(served.spelled(text)) == (path is not None), "what the library does"
    error = _fault(form)
    assert (error and error.path) == path

"""Special tokens are no text: readers of an answer do not see them, so no string and no free text holds one.

Judged from outside: whatever is generated is decoded as vLLM decodes it, without special tokens.
"""

import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from guided_contract.errors import GuidedError
from guided_grammar.matching import Matcher
from support import tokenizers
from support.worker_and_rank import EOS, WorkerAndRank

pytestmark = pytest.mark.usefixtures("unhurried")

SPECIAL = frozenset(tokenizers.chat().all_special_ids) | {
    one for one, token in tokenizers.chat().added_tokens_decoder.items() if token.special
}
BOUNDED = {"type": "string", "minLength": 3, "maxLength": 9}
OBJECT = {"type": "object", "properties": {"<|im_end|>": BOUNDED}, "required": ["<|im_end|>"]}
# kind, grammar; of another kind than JSON, a regex that reads its texts
CASES: dict[str, tuple[Any, ...]] = {
    "string": ("json", {"type": "string"}),
    "bounded": ("json", BOUNDED),
    "pattern": ("json", {"type": "string", "pattern": "^[a-zA-Z<>|_/]+$"}),
    "any": ("json", {"type": "object", "additionalProperties": True}),
    "name": ("json", OBJECT),
    "regex": ("regex", '[^"]{1,9}', '[^"]{1,9}'),
    "named regex": ("regex", r"x<\|im_end\|>y", r"x<\|im_end\|>y"),
    "choice": ("choice", ["<|im_end|>", "[TOOL]"], r"<\|im_end\|>|\[TOOL\]"),
    "EBNF": ("grammar", "root ::= [^a]{1,9}", "[^a]{1,9}"),
    "Lark": ("grammar", "start: /.{1,9}/", ".{1,9}"),
}


@pytest.fixture(scope="module")
def served() -> WorkerAndRank:
    return WorkerAndRank.of("chat")


def number(text: str) -> int:
    """Return a special token."""
    return int(tokenizers.chat().convert_tokens_to_ids(text))


def allowed_by(served: WorkerAndRank, matcher: Matcher) -> set[int]:
    return set(np.flatnonzero(served.allowed(matcher)).tolist())


def follow(served: WorkerAndRank, matcher: Matcher, *texts: str) -> set[int]:
    """Accept special tokens by their texts and other texts byte by byte; return what is allowed then."""
    for text in texts:
        special = [number(text)] if text in tokenizers.SPECIAL else None
        assert matcher.accept(special or served.spelled(text)), text
    return allowed_by(served, matcher)


def drawn(served: WorkerAndRank, matcher: Matcher, chooser: random.Random) -> list[int]:
    """Return tokens to the text's end, special ones wherever one is allowed."""
    taken: list[int] = []
    while not matcher.is_terminated():
        allowed = sorted(allowed_by(served, matcher))
        special = [token for token in allowed if token in SPECIAL and token != EOS]
        ends = [token for token in allowed if token == EOS or b'"' in served.tokens[token]]
        among = special or (ends if len(taken) > 20 else None) or allowed
        taken.append(chooser.choice(among))
        assert matcher.accept(taken[-1:])
        if len(taken) > 300:
            return []
    return taken


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("name", CASES)
def test_an_answer_without_its_special_tokens_still_matches(
    served: WorkerAndRank, backend: Any, name: str
) -> None:
    kind, spec, *readers = CASES[name]
    try:
        matcher = served.matcher(kind, spec, backend)
    except GuidedError as refusal:
        assert refusal.code == "grammar_unsupported"  # noqa: PT017 - the other way out
        assert (backend == "xgrammar") == (name == "Lark")
        assert re.search("special token|reads only (EBNF|Lark)", refusal.message)  # noqa: PT017 - as above
        return
    chooser = random.Random(name)
    texts = []
    for _ in range(9):
        matcher.reset()
        texts.append(tokenizers.chat().decode(drawn(served, matcher, chooser), skip_special_tokens=True))
    whole = [text for text in texts if text and "\ufffd" not in text]  # a byte alone may be no character
    assert whole
    for text in whole:
        if kind == "json":
            jsonschema.validate(json.loads(text), spec)
        else:
            assert re.fullmatch(readers[0], text, re.DOTALL), text


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("name", ["string", "bounded", "pattern", "any", "regex"])
def test_no_special_token_is_allowed_in_text(served: WorkerAndRank, backend: Any, name: str) -> None:
    """One library's masks allowed 999 of 1,000 such tokens there."""
    matcher = served.matcher(*CASES[name][:2], backend)
    begun = {"any": '{"b":"b', "regex": "b"}.get(name, '"bb')

    allowed = follow(served, matcher, begun)

    assert not (allowed & SPECIAL) - {EOS}
    assert set(served.spelled("b")) <= allowed
    assert EOS in follow(served, matcher, {"any": '"}', "regex": ""}.get(name, 'b"'))


TAG = {"begin": "<|im_start|>call[TOOL]", "end": "<|sép|>"}
OLD = {"structures": [{**TAG, "schema": {"type": "string"}}], "triggers": ["<|im_start|>"]}
INNER = {"type": "tag", **TAG, "content": {"type": "json_schema", "json_schema": {"type": "string"}}}
TRIGGERED = {"type": "triggered_tags", "triggers": ["<|im_start|>"], "tags": [INNER]}


@pytest.mark.parametrize("form", [OLD, TRIGGERED, INNER], ids=["old form", "triggered", "forced"])
def test_a_tag_that_names_special_tokens_means_them(served: WorkerAndRank, form: Any) -> None:
    tag = form if form is OLD else {"type": "structural_tag", "format": form}
    matcher = served.matcher("structural_tag", tag, "xgrammar")
    assert number("<|im_start|>") in follow(served, matcher)
    assert follow(served, matcher, "<|im_start|>", "call") & SPECIAL == {number("[TOOL]")}
    assert not follow(served, matcher, "[TOOL]", '"b') & SPECIAL
    assert follow(served, matcher, '"') & SPECIAL == {number("<|sép|>")}
    assert EOS in follow(served, matcher, "<|sép|>")


def test_a_lark_grammar_that_names_a_special_token_means_it(served: WorkerAndRank) -> None:
    text = 'start: "x" <|im_end|> /[^"]{1,3}/  // not "<|im_end|>"'

    matcher = served.matcher("grammar", text, "guidance")

    assert follow(served, matcher, "x") == {number("<|im_end|>")}
    assert not follow(served, matcher, "<|im_end|>") & SPECIAL

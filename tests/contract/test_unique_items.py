"""uniqueItems over scalars, as ranks see to it; jsonschema and a reader of whole items judge.

Each mask is compared with the grammar's own, token by token: what is taken out ends an item that is there, or
begins a second 0 or word, and nothing that does so stays.
"""

import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from guided_contract.wire import Backend
from support.unique import EOS, Words, likes, mask, obj

STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
INTEGERS = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


SERVED: dict[str, Any] = {
    "strings": STRINGS,
    "integers": INTEGERS,
    "counted": {**STRINGS, "minItems": 3, "maxItems": 5},
    "counted integers": {**INTEGERS, "minItems": 4},
    "of some length": {**STRINGS, "items": {"type": "string", "minLength": 2}},
    "two beside a string": obj(a=STRINGS, b={"const": "a"}, c=INTEGERS),
    "or null": obj(a={"anyOf": [STRINGS, {"type": "null"}]}),
    "arrays of them": {"type": "array", "items": {**STRINGS, "maxItems": 3}, "minItems": 2},
    "by reference": {"$defs": {"s": {"type": "string"}, "t": {**STRINGS, "items": {"$ref": "#/$defs/s"}}}}
    | obj(a={"$ref": "#/$defs/t"}),
    "pydantic's set of strings": obj(tags={"items": {"type": "string"}, "title": "Tags", **STRINGS}),
}


_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|"|[-0-9]+|[][{}]|[^][{}"0-9-]+', re.DOTALL)

_NAME_END = re.compile(rb"\s*:")


def is_fine(text: bytes, least: int = 0) -> bool:
    """Return whether no array has an item twice that is over, nor a second 0, in a text that may go on.

    Parameters
    ----------
    least
        Characters of each string.
    """
    arrays: list[list[Any]] = []
    for part in _PARTS.finditer(text):
        piece, is_last = part[0], part.end() == len(text)
        if piece in {b"[", b"{"}:
            arrays.append([])
        elif piece in {b"]", b"}"}:
            arrays.pop()
        elif piece == b'"':  # the beginning of one that is not over
            return True
        elif piece[:1] == b'"':
            item = json.loads(piece.decode(errors="replace"), strict=False)
            if len(item) < least:
                return False
        elif piece[:1] in b"-0123456789" and piece != b"-" and not (is_last and piece not in {b"0", b"-0"}):
            item = int(piece)
        else:
            continue
        if piece[:1] not in b"[]{}" and arrays and not _NAME_END.match(text, part.end()):
            if item in arrays[-1]:
                return False
            arrays[-1].append(item)
    return True


@pytest.fixture(scope="module", params=["awkward"])
def words(request: pytest.FixtureRequest) -> Words:
    return Words.of(request.param)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("case", SERVED)
def test_a_mask_is_the_grammars_own_less_what_makes_an_item_twice(
    words: Words, backend: Backend, case: str
) -> None:
    schema, tokens, ended, cleared = SERVED[case], words.tokens, 0, 0
    least = schema.get("items", {}).get("minLength", 0)
    judge = jsonschema.Draft202012Validator(schema)
    kept, free = words.matcher(schema, backend), words.matcher(schema, backend)
    assert kept.counted is not None
    free.counted = None
    for seed in range(6):
        if seed >= 3 and ended:  # more only where no walk has come to an end
            break
        chance = random.Random(f"{case} {seed}")
        weights = likes(tokens, chance)
        kept.reset()
        free.reset()
        text = b""
        for step in range(60):
            row = mask(kept, tokens)
            gone = np.flatnonzero(mask(free, tokens) & ~row).tolist()
            cleared += len(gone)
            for token in chance.sample(gone, min(25, len(gone))):
                assert not is_fine(text + tokens[token], least), (seed, text, tokens[token])
            allowed = np.flatnonzero(row).tolist()
            others = [token for token in allowed if token != EOS]
            for token in chance.sample(others, min(25, len(others))):
                assert is_fine(text + tokens[token], least), (seed, text, tokens[token])
                assert kept.valid_prefix([token]) == 1, (seed, text, tokens[token])
            if EOS in allowed:
                assert judge.is_valid(json.loads(text.decode(errors="replace"), strict=False)), (seed, text)
                ended += 1
            hurried = [token for token in allowed if step > 30 and tokens[token][:1] in b'"]}'] or allowed
            token = chance.choices(hurried, weights[hurried])[0]
            if token == EOS:
                break
            assert kept.accept([token])
            assert free.accept([token])
            text += tokens[token]
    assert ended, "no walk ended"
    assert cleared, "no item came twice"


# A text, what may not follow it, and what may.
FOLLOWED: list[tuple[str, str, str]] = [
    ('["a","\\u0061', '"', "a"),
    ('["\\u000a","\\n', '"', "a"),
    ('["\\"","\\"', '"', "\\"),
    ('["", ', "", '"'),
    ('["","', '"', "a"),
    ('["a","ab","', "", '"'),
    ("[0,-", "0", "1"),
    ("[-0,", "0", "-"),
    ("[1,0,1", ",", "0"),
    ("[12,1", "", "23"),
    ("[12, 12", "]", "0"),
]


@pytest.mark.parametrize(("text", "not_next", "after"), FOLLOWED)
@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_an_item_is_its_value_however_it_is_spelt(
    words: Words, backend: Backend, text: str, not_next: str, after: str
) -> None:
    matcher = words.matcher(STRINGS if '"' in text else INTEGERS, backend)
    single = {text: token for token, text in enumerate(words.tokens) if len(text) == 1}
    tokens = [single[bytes([byte])] for byte in text.encode()]
    if matcher.valid_prefix(tokens) < len(tokens):
        pytest.skip(f"{backend} writes no such text")

    assert matcher.accept(tokens)
    row = mask(matcher, words.tokens)
    assert not any(row[single[byte.encode()]] for byte in not_next)
    assert all(row[single[byte.encode()]] for byte in after)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_drafts_are_judged_as_tokens_are(words: Words, backend: Backend) -> None:
    matcher = words.matcher(STRINGS, backend)
    single = {text: token for token, text in enumerate(words.tokens) if len(text) == 1}
    drafts = [single[bytes([byte])] for byte in b'["a","b","a","c"]']

    assert matcher.valid_prefix(drafts) == len('["a","b","a')


def tag(schema: Any) -> Any:
    """Return a structural tag with a schema."""
    return {"structures": [{"begin": "<a>", "schema": schema, "end": "</a>"}], "triggers": ["<a"]}


@pytest.mark.parametrize("items", ["", '"x","y"', '"x","x"', '"x", "\\u0078"', '"x","xx","y","x"'])
def test_in_a_tool_the_items_of_each_call_differ(words: Words, items: str) -> None:
    schema = obj(a=STRINGS)
    matcher = words.matcher(tag(schema), "guidance", "structural_tag")
    single = {text: token for token, text in enumerate(words.tokens) if len(text) == 1}
    value = f'{{"a":[{items}]}}'
    text = f'["x","x"] <a>{{"a":["x","y"]}}</a> <a>{value}</a>'

    is_valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(value))
    assert matcher.accept([single[bytes([byte])] for byte in text.encode()]) == is_valid

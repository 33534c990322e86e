"""uniqueItems over scalars, as ranks see to it: jsonschema judges what a walk writes, and what it may not.

What is taken out of a mask is followed as far as but one byte may follow: an item must be there twice then.
"""

import json
import random
import re
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np
import pytest

from guided_contract.wire import Backend
from guided_grammar.matching import Matcher
from support.worker_and_rank import EOS, WorkerAndRank

pytestmark = pytest.mark.usefixtures("unhurried")


def unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **more}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


STRINGS, INTEGERS = unique({"type": "string"}), unique({"type": "integer"})
OR_NULL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
SERVED: dict[str, Any] = {
    "strings": STRINGS,
    "integers": INTEGERS,
    "counted": {**STRINGS, "minItems": 3, "maxItems": 5},
    "counted integers": {**INTEGERS, "minItems": 4},
    "of some length": unique({"type": "string", "minLength": 2}),
    "two beside a string": obj(a=STRINGS, b={"const": "a"}, c=INTEGERS),
    "or null": obj(a={"anyOf": [STRINGS, {"type": "null"}]}),
    "arrays of them": {"type": "array", "items": {**STRINGS, "maxItems": 3}, "minItems": 2},
    "by reference": {"$defs": {"s": {"type": "string"}, "t": unique({"$ref": "#/$defs/s"})}}
    | obj(a={"$ref": "#/$defs/t"}),
    "numbers": unique({"type": "number"}, minItems=3),
    "strings and words": unique({"type": ["string", "null", "boolean"]}, minItems=3),
    "strings and integers": unique({"type": ["string", "integer"]}, minItems=3),
    "integers or null": unique(OR_NULL, minItems=3),
    "numbers, strings and words": unique({"type": ["number", "string", "boolean"]}, minItems=3),
}
KEPT = {"uniqueItems", "minLength"}
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[]["{}]', re.DOTALL)


def exact(number: str) -> Any:
    """Return a number as it is; one that is too large to be read as its text."""
    try:
        return Decimal(number)
    except ArithmeticError:
        return number


def read(text: bytes) -> Any:
    return json.loads(text.decode(errors="replace"), strict=False, parse_float=exact)


def closing(text: bytes) -> bytes | None:
    """Return what closes all that is open in a text, None if it stands in a string."""
    open_ones: list[bytes] = []
    for part in _STRUCTURE.finditer(text):
        if part[0] == b'"':
            return None
        if part[0] in {b"[", b"{"}:
            open_ones.insert(0, b"]" if part[0] == b"[" else b"}")
        elif part[0] in {b"]", b"}"}:
            open_ones.pop(0)
    return b"".join(open_ones)


def is_wrong(judge: Any, text: bytes, since: int) -> bool:
    """Return whether an item of a text that may go on is there twice, or too short, since its first bytes."""
    for end in range(since, len(text)):
        ends = closing(text[:end])
        if ends is None or text[end : end + 1] in b"0123456789.eE":
            continue
        try:
            errors = judge.iter_errors(read(text[:end].rstrip(b", \n\t\r") + ends))
        except (ArithmeticError, ValueError):  # it stands within a word, or a number is too large to be read
            continue
        if any(one.validator in KEPT for error in errors for one in (error, *(error.context or ()))):
            return True
    return False


def forced(served: WorkerAndRank, free: Matcher, text: bytes, token: int) -> bytes:
    """Return a text after a token and all that must follow, with a comma if that may be."""
    while True:
        assert free.accept([token])
        text += served.tokens[token]
        some = [one for one in np.flatnonzero(served.allowed(free)).tolist() if one != EOS]
        following = {served.tokens[one].lstrip()[:1] for one in some} - {b""}
        if following <= {b",", b"]"}:
            return text + b","
        if len(following) != 1:
            return text + b"0," * bool(
                re.search(rb"[0.][eE]\d*$", text)
            )  # of 0e, which is 0 whatever follows
        (token,) = served.spelled(following.pop().decode())


def likes(tokens: list[bytes], chance: random.Random) -> Any:
    """Return how likely a walk takes each token: few letters and digits, so that items come again."""
    found = []
    rare = chance.choice((1e-5, 1e-3))
    for text in tokens:
        is_odd = text[:1] == b"\\" or b'"' in text[1:]
        is_short = len(text) == 1 and text in b'ab01"'
        often = (
            9.0 if text in {b'"', b","} else 3.0 if is_short else chance.choice((rare, is_odd / 3 or rare))
        )
        often += 3.0 * (text != b"" and text[:1] in b"}],{[tfn-")
        found.append(often / max(1, len(text)) ** chance.choice((1, 3)))
    return np.array(found)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("case", SERVED)
def test_a_mask_is_the_grammars_own_less_what_makes_an_item_twice(
    served: WorkerAndRank, backend: Backend, case: str
) -> None:
    schema, tokens, ended, judged = SERVED[case], served.tokens, 0, 0
    judge = jsonschema.Draft202012Validator(schema)
    kept, free, other = (served.matcher("json", schema, backend, is_proven=False) for _ in range(3))
    assert kept.counted is not None
    free.counted = other.counted = None
    for seed in range(8):
        if seed >= 3 and ended and judged:
            break
        chance = random.Random(f"{case} {seed}")
        weights = likes(tokens, chance)
        kept.reset()
        free.reset()
        text, taken = b"", list[int]()
        for step in range(200):
            row = served.allowed(kept)
            gone = np.flatnonzero(served.allowed(free) & ~row).tolist()
            for token in chance.sample(gone, min(3, len(gone))):
                other.reset()
                assert other.accept(taken)
                end = forced(served, other, text, token)
                assert is_wrong(judge, end, len(text)), (seed, text, tokens[token], end)
                judged += 1
            allowed = np.flatnonzero(row).tolist()
            assert allowed, (seed, text)
            if EOS in allowed:
                assert judge.is_valid(read(text)), (seed, text)
                ended += 1
            hurried = [one for one in allowed if one == EOS or (step > 40 and tokens[one][:1] in b'"]}')]
            some = hurried if hurried and step > 40 else allowed
            token = EOS if EOS in some and step > 40 else chance.choices(some, weights[some])[0]
            if token == EOS:
                break
            assert kept.valid_prefix([token]) == 1
            assert kept.accept([token]), (seed, text, tokens[token])
            assert free.accept([token])
            taken.append(token)
            text += tokens[token]
    assert ended, "no walk ended"
    assert judged, "no item came twice"


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
    served: WorkerAndRank, backend: Backend, text: str, not_next: str, after: str
) -> None:
    schema = STRINGS if '"' in text else INTEGERS
    matcher = served.matcher("json", schema, backend, is_proven=False)
    if matcher.valid_prefix(served.spelled(text)) < len(text):
        pytest.skip(f"{backend} writes no such text")
    assert matcher.accept(served.spelled(text))
    row = served.allowed(matcher)
    assert not any(row[served.spelled(not_next)])
    assert all(row[served.spelled(after)])


@pytest.mark.parametrize("items", ["", '"x","y"', '"x","x"', '"x", "\\u0078"', '"x","xx","y","x"'])
def test_in_a_tool_the_items_of_each_call_differ(served: WorkerAndRank, items: str) -> None:
    schema = obj(a=STRINGS)
    tag = {"structures": [{"begin": "<a>", "schema": schema, "end": "</a>"}], "triggers": ["<a"]}
    matcher = served.matcher("structural_tag", tag, "guidance", is_proven=False)
    value = f'{{"a":[{items}]}}'
    text = f'["x","x"] <a>{{"a":["x","y"]}}</a> <a>{value}</a>'
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(value))
    assert matcher.accept(served.spelled(text)) == is_valid

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

STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
INTEGERS = {**STRINGS, "items": {"type": "integer"}}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


SERVED: dict[str, Any] = {
    "counted": {**STRINGS, "minItems": 3, "maxItems": 5},
    "of some length": {**STRINGS, "items": {"type": "string", "minLength": 2}, "minItems": 3},
    "two beside a string": obj(a={**STRINGS, "minItems": 2}, b={"const": "a"}, c={**INTEGERS, "minItems": 3}),
    "or null": obj(a={"anyOf": [{**INTEGERS, "minItems": 3}, {"type": "null"}]}),
    "arrays of them": {"type": "array", "items": {**STRINGS, "maxItems": 3}, "minItems": 3},
    "by reference": {
        "$defs": {"s": {"type": "string"}, "t": {**STRINGS, "items": {"$ref": "#/$defs/s"}, "minItems": 3}}
    }
    | obj(a={"$ref": "#/$defs/t"}),
    **{
        name: {**STRINGS, "items": items, "minItems": 3}
        for name, items in {
            "integers": {"type": "integer"},
            "numbers": {"type": "number"},
            "strings and words": {"type": ["string", "null", "boolean"]},
            "integers or null": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "numbers, strings and words": {"type": ["number", "string", "boolean"]},
        }.items()
    },
}
SHORT = {"type": "string", "maxLength": 1}
REFUSED: dict[str, tuple[Any, str]] = {
    "a most length": ({**STRINGS, "items": SHORT}, "$.uniqueItems"),
    "a pattern": ({**STRINGS, "items": {"type": "string", "pattern": "^a*b$"}}, "$.uniqueItems"),
    "bounds": ({**INTEGERS, "items": {"type": "integer", "minimum": 0}}, "$.uniqueItems"),
    "words": ({**STRINGS, "items": {"type": ["boolean", "null"]}}, "$.uniqueItems"),
    "anything": ({"type": "array", "uniqueItems": True}, "$.uniqueItems"),
    "objects": ({**STRINGS, "items": obj(n={"type": "string"})}, "$.uniqueItems"),
    "arrays": ({**STRINGS, "items": STRINGS}, "$.uniqueItems"),
    "strings or objects": (
        {**STRINGS, "items": {"anyOf": [{"type": "string"}, obj(n={"type": "string"})]}}, "$.uniqueItems"),
    "both of two schemas": (
        {**STRINGS, "items": {"allOf": [{"type": ["string", "null"]}, {"type": ["null", "integer"]}]}},
        "$.uniqueItems"),
    "an array that need not": ({"anyOf": [STRINGS, {"type": "array", "items": {"type": "integer"}}]},
                               "$.anyOf[0].uniqueItems"),
    "another schema of its items": ({**STRINGS, "allOf": [{"items": {"maxLength": 2}}]}, "$.uniqueItems"),
    "below a name that is not printable": (obj(**{"a\x7f": obj(a=STRINGS)}),
                                           "$.properties['a\x7f'].properties.a.uniqueItems"),
    "arrays of other names beside a named one": (
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": STRINGS},
        "$.additionalProperties.uniqueItems"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["tiny", "awkward"])
def served(request: pytest.FixtureRequest) -> WorkerAndRank:
    return WorkerAndRank.of(request.param)


def matchers(served: WorkerAndRank, schema: Any, backend: Backend, count: int) -> list[Matcher]:
    """Return a rank's matcher, and others of the grammar alone."""
    make = served.matchers("json", schema, backend, is_proven=False)
    made = [make() for _ in range(count)]
    for matcher in made[1:]:
        matcher.counted = None
    return made


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
    """Return whether an item of a text is over since its first bytes, and is there twice or too short."""
    for end in range(since, len(text)):
        ends = closing(text[:end])
        if ends is None or text[end : end + 1] in b"0123456789.eE":
            continue
        try:
            errors = judge.iter_errors(read(text[:end].rstrip(b", \n\t\r") + ends))
        except (ArithmeticError, ValueError):  # it stands within a word, or a number is too large to be read
            continue
        if any(error.validator in {"uniqueItems", "minLength"} for error in errors):
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
        if len(following) != 1:  # of 0e, which is 0 whatever follows, a digit must
            return text + (b"0," if re.search(rb"[0.][eE]\d*$", text) else b"")
        (token,) = served.spelled(following.pop().decode())


def likes(tokens: list[bytes], chance: random.Random) -> Any:
    """Return how likely a walk takes each token: few letters and digits, so that items come again."""
    found = []
    rare = chance.choice((1e-5, 1e-3))
    for text in tokens:
        is_odd = text[:1] == b"\\" or b'"' in text[1:]
        is_short = len(text) == 1 and text in b'ab01"'
        found.append(
            9.0 if text in {b'"', b","} else 3.0 if is_short else chance.choice((rare, is_odd / 3 or rare))
        )
    starts = [3.0 * (text != b"" and text[:1] in b"}],{[tfn-") for text in tokens]
    lengths = np.array([max(1, len(text)) for text in tokens])
    return (np.array(found) + starts) / lengths ** chance.choice((1, 3))


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("case", SERVED)
def test_items_differ_and_what_may_differ_stays(served: WorkerAndRank, backend: Backend, case: str) -> None:
    schema, tokens, ended, judged = SERVED[case], served.tokens, 0, 0
    judge = jsonschema.Draft202012Validator(schema)
    kept, free, other = matchers(served, schema, backend, 3)
    assert kept.counted is not None
    for seed in range(3):
        chance = random.Random(f"{case} {seed}")
        weights = likes(tokens, chance)
        kept.reset()
        free.reset()
        text, taken = b"", list[int]()
        for step in range(150):
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
    (matcher,) = matchers(served, STRINGS if '"' in text else INTEGERS, backend, 1)
    tokens = served.spelled(text)
    if matcher.valid_prefix(tokens) < len(tokens):
        pytest.skip(f"{backend} writes no such text")

    assert matcher.accept(tokens)
    row = served.allowed(matcher)
    assert not row[served.spelled(not_next)].any()
    assert row[served.spelled(after)].all()


def test_drafts_are_judged_as_tokens_are(served: WorkerAndRank) -> None:
    (matcher,) = matchers(served, STRINGS, "guidance", 1)

    assert matcher.valid_prefix(served.spelled('["a","b","a","c"]')) == len('["a","b","a')


def tag(schema: Any) -> Any:
    """Return a structural tag with a schema."""
    return {"structures": [{"begin": "<a>", "schema": schema, "end": "</a>"}], "triggers": ["<a"]}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_seen_to_is_refused_with_its_path(served: WorkerAndRank, case: str) -> None:
    schema, path = REFUSED[case]
    told = served.refusal("json", schema, "guidance")
    assert told is not None
    assert (told.code, told.path) == ("grammar_unsupported", path)


def test_in_a_tool_it_is_refused_in_words_that_say_why(served: WorkerAndRank) -> None:
    told = served.refusal("structural_tag", tag(obj(a={**STRINGS, "items": SHORT})), "guidance")
    assert told is not None
    assert "only where the text before a value tells" in told.message
    assert told.code == "grammar_unsupported"
    assert (told.path or "").endswith("schema.properties.a.uniqueItems")


@pytest.mark.parametrize("items", ["", '"x","y"', '"x","x"', '"x", "\\u0078"', '"x","xx","y","x"'])
def test_in_a_tool_the_items_of_each_call_differ(served: WorkerAndRank, items: str) -> None:
    schema = obj(a=STRINGS)
    matcher = served.matcher("structural_tag", tag(schema), "guidance", is_proven=False)
    value = f'{{"a":[{items}]}}'
    text = f'["x","x"] <a>{{"a":["x","y"]}}</a> <a>{value}</a>'

    is_valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(value))
    assert matcher.accept(served.spelled(text)) == is_valid

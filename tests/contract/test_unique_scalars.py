"""uniqueItems over several kinds of scalars: jsonschema judges what a walk writes, and what it may not write.

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
from support.unique import EOS, Words, likes, mask

pytestmark = pytest.mark.usefixtures("unhurried")

ITEMS: dict[str, Any] = {
    "numbers": {"type": "number"},
    "strings and words": {"type": ["string", "null", "boolean"]},
    "strings and integers": {"type": ["string", "integer"]},
    "integers or null": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "numbers, strings and words": {"type": ["number", "string", "boolean"]},
}


@pytest.fixture(scope="module", params=["awkward"])
def words(request: pytest.FixtureRequest) -> Words:
    return Words.of(request.param)


_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[]["{}]', re.DOTALL)


def exact(number: str) -> Any:
    """Return a number as it is; one that is too large to be read as its text."""
    try:
        return Decimal(number)
    except ArithmeticError:
        return number


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


def is_twice(judge: Any, text: bytes, since: int) -> bool:
    """Return whether an item of a text that may go on is there twice, and over, since its first bytes."""
    for end in range(since, len(text)):
        ends = closing(text[:end])
        if ends not in {b"", b"]"} or text[end : end + 1] in b"0123456789.eE":
            continue
        value = (text[:end].rstrip(b", \n\t\r") + ends).decode(errors="replace")
        try:
            errors = judge.iter_errors(json.loads(value, strict=False, parse_float=exact))
        except (ArithmeticError, ValueError):  # it stands within a word, or a number is too large to be read
            continue
        if any(error.validator == "uniqueItems" for error in errors):
            return True
    return False


def forced(free: Matcher, text: bytes, token: int, tokens: list[bytes]) -> bytes:
    """Return a text after a token and all that must follow, with a comma if that may be."""
    single = {text: token for token, text in enumerate(tokens) if len(text) == 1}
    while True:
        assert free.accept([token])
        text += tokens[token]
        some = [one for one in np.flatnonzero(mask(free, tokens)).tolist() if one != EOS]
        following = {tokens[one].lstrip()[:1] for one in some} - {b""}
        if following <= {b",", b"]"}:
            return text + b","
        if len(following) != 1:
            return text
        token = single[following.pop()]


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("case", ITEMS)
def test_items_of_several_kinds_differ_and_what_may_differ_stays(
    words: Words, backend: Backend, case: str
) -> None:
    schema = {"type": "array", "items": ITEMS[case], "uniqueItems": True, "minItems": 3}
    tokens, ended, judged = words.tokens, 0, 0
    judge = jsonschema.Draft202012Validator(schema)
    kept, free, other = (words.matcher(schema, backend) for _ in range(3))
    free.counted = other.counted = None
    starts = np.array([text != b"" and text[:1] in b"}],{[tfn-" for text in tokens])
    lengths = np.array([max(1, len(text)) for text in tokens])
    for seed in range(3):
        chance = random.Random(f"{case} {seed}")
        weights = likes(tokens, chance) + 3.0 * starts
        weights /= lengths ** chance.choice((1, 3))
        kept.reset()
        free.reset()
        text, taken = b"", list[int]()
        for step in range(200):
            row = mask(kept, tokens)
            gone = np.flatnonzero(mask(free, tokens) & ~row).tolist()
            for token in chance.sample(gone, min(3, len(gone))):
                other.reset()
                assert other.accept(taken)
                end = forced(other, text, token, tokens)
                end += (
                    b"0," if re.search(rb"[0.][eE]\d*$", end) else b""
                )  # of 0e, which is 0 whatever follows
                assert is_twice(judge, end, len(text)), (
                    seed,
                    text,
                    tokens[token],
                    end,
                )
                judged += 1
            allowed = np.flatnonzero(row).tolist()
            assert allowed, (seed, text)
            if EOS in allowed:
                value = json.loads(text.decode(errors="replace"), strict=False, parse_float=exact)
                assert judge.is_valid(value), (seed, text)
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

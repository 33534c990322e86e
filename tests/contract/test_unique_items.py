"""uniqueItems over strings and integers, as ranks see to it; jsonschema and a reader of whole items judge.

Each mask is compared with the grammar's own, token by token: what is taken out ends an item that is there, or
begins a second 0, and nothing that does so stays.
"""

import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Backend, Kind, Load
from guided_engine.ranks.loaded_grammars import Prototypes
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Done, Job
from support import tokenizers

KEY = "0" * 64
EOS = 1  # of both tokenizers
STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
INTEGERS = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


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
OPEN: dict[str, Any] = {**obj(n={"type": "string"}), "additionalProperties": False,
                        "patternProperties": {"^x-[a-z]+$": {"type": "boolean"}}}
CLOSED: dict[str, Any] = {**obj(k={"enum": ["u", "v"]}, n={"type": "string"}), "additionalProperties": False}
# Items of which one may be there whose end would leave nothing else, somewhere before its last byte.
ITEMS: dict[str, Any] = {
    "anything": True,
    "numbers": {"type": "number"},
    "strings and words": {"type": ["string", "null", "boolean"]},
    "strings and integers": {"type": ["string", "integer"]},
    "strings with a pattern": {"type": "string", "pattern": "^[ab]"},
    "objects with any names": {"type": "object", "additionalProperties": {"type": "null"}},
    "objects with more names": OPEN,
    "objects that close": CLOSED,
    "objects whose last property may be absent": {**CLOSED, "required": []},
    "objects without properties that must be there": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}},
        "additionalProperties": False,
    },
    "objects that end with an object": {
        **obj(a={"type": "boolean"}, b={**obj(c={"type": "boolean"}, d={"type": ["integer", "null"]}),
                                        "additionalProperties": False}), "additionalProperties": False,
    },
    "objects that end with an array": {
        **obj(a={"type": "array", "items": {"type": "boolean"}}), "additionalProperties": False,
    },
    "objects that end with such an array": {
        **obj(a={"type": "array", "items": CLOSED, "uniqueItems": True}), "additionalProperties": False,
    },
    "such arrays": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "strings or objects": {"anyOf": [{"type": "string"}, CLOSED]},
    "one property or the other": {
        "type": "object", "additionalProperties": False,
        "properties": {"a": {"type": "string"}, "b": CLOSED},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "objects that hold each other": {"$ref": "#/$defs/o"},
}  # fmt: skip
OF_ONE_LIBRARY = {"objects with more names", "one property or the other", "strings with a pattern"}
HOLDING: dict[str, Any] = {
    "o": {"type": "object", "properties": {"a": {"type": "null"}, "o": {"$ref": "#/$defs/o"}},
          "additionalProperties": False},
}  # fmt: skip
REFUSED: dict[str, tuple[Any, str]] = {
    "a most length": ({**STRINGS, "items": {"type": "string", "maxLength": 3}}, "$.uniqueItems"),
    "a pattern": ({**STRINGS, "items": {"type": "string", "pattern": "^a*b$"}}, "$.uniqueItems"),
    "bounds": ({**INTEGERS, "items": {"type": "integer", "minimum": 0}}, "$.uniqueItems"),
    "words": ({**STRINGS, "items": {"type": ["boolean", "null"]}}, "$.uniqueItems"),
    "a last property of few values": (
        {**STRINGS, "items": {**obj(n={"type": "string"}, k={"type": "boolean"}),
                              "additionalProperties": False}}, "$.uniqueItems"),
    "counted names": ({**STRINGS, "items": {"type": "object", "maxProperties": 2}}, "$.uniqueItems"),
    "counted arrays": ({**STRINGS, "items": {"type": "array", "maxItems": 2}}, "$.uniqueItems"),
    "an array that need not": ({"anyOf": [STRINGS, {"type": "array", "items": {"type": "integer"}}]},
                               "$.anyOf[0].uniqueItems"),
    "another schema of its items": ({**STRINGS, "allOf": [{"items": {"maxLength": 2}}]}, "$.uniqueItems"),
}  # fmt: skip


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


class Words:
    """One tokenizer, and what ranks have of a schema."""

    def __init__(self, known: vocabulary.Vocabulary, folder: Path) -> None:
        self.tokens: list[bytes] = known.tokens
        self._folder = folder
        self._backends = Backends(known)
        self._compiler = Compiler(self._backends, known, folder)

    def compiled(self, kind: Kind, grammar: Any, backend: Backend) -> Done:
        spec = json.dumps(grammar)
        job = Job(key=KEY, kind=kind, spec=spec, backends=[backend], timeout_s=60, memory_bytes=1 << 40)
        return self._compiler.run(job)

    def matcher(self, schema: Any, backend: Backend) -> Matcher:
        done = self.compiled("json", schema, backend)
        ranks = Prototypes(self._folder, self._backends)
        load = Load(
            key=KEY,
            backend=backend,
            artifact=done.artifact,
            sha256=done.sha256,
            spec=done.spec,
            positions=done.positions,
        )
        assert not ranks.load(load).error
        return ranks.matcher(KEY, [EOS])


@pytest.fixture(scope="module", params=["tiny", "awkward"])
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Words:
    folder = tmp_path_factory.mktemp("grammars")
    if request.param == "awkward":
        return Words(tokenizers.vocabulary(), folder)
    model = str(tinymodel.models() / "tiny")
    pod = PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
    return Words(vocabulary.load(pod), folder)


def mask(matcher: Matcher, tokens: list[bytes]) -> Any:
    row = np.full((1, -(-len(tokens) // 32)), -1, dtype=np.int32)
    matcher.fill(row, 0)
    return np.unpackbits(row[0].view(np.uint8), bitorder="little")[: len(tokens)].astype(bool)


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
    return np.array(found)


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


def is_twice(judge: Any, text: bytes, since: int, *, is_nested: bool) -> bool:
    """Return whether an item of a text that may go on is there twice, and over, since its first bytes."""
    for end in range(since, len(text)):
        ends = closing(text[:end])
        if ends is None or (ends not in {b"", b"]"} and not is_nested) or text[end : end + 1] in b"0123456789.eE":
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
def test_items_of_any_kind_differ_and_what_may_differ_stays(words: Words, backend: Backend, case: str) -> None:
    schema = {"$defs": HOLDING, "type": "array", "items": ITEMS[case], "uniqueItems": True, "minItems": 3}
    tokens, ended, judged = words.tokens, 0, 0
    judge = jsonschema.Draft202012Validator(schema)
    if case in OF_ONE_LIBRARY and backend == "xgrammar":
        pytest.skip("xgrammar does not enforce what its items ask for")
    kept, free, other = (words.matcher(schema, backend) for _ in range(3))
    free.counted = other.counted = None
    starts = np.array([text != b"" and text[:1] in b"}],{[tfn-" for text in tokens])
    lengths = np.array([max(1, len(text)) for text in tokens])
    for seed in range(4):
        chance = random.Random(f"{case} {seed}")
        weights = likes(tokens, chance) + 3.0 * starts
        weights /= lengths**chance.choice((1, 3))
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
                end += b"0," if re.search(rb"[0.][eE]\d*$", end) else b""  # of 0e, which is 0 whatever follows
                assert is_twice(judge, end, len(text), is_nested="such" in case), (seed, text, tokens[token], end)
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


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_seen_to_is_refused_with_its_path(words: Words, case: str) -> None:
    schema, path = REFUSED[case]
    with pytest.raises(GuidedError) as refusal:
        words.matcher(schema, "guidance")
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", path)


def test_in_a_tool_it_is_refused_in_words_that_say_so(words: Words) -> None:
    form = {"type": "json_schema", "json_schema": obj(a=STRINGS)}
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<a>", "content": form, "end": "</a>"},
    }
    with pytest.raises(GuidedError, match="in tools and structural tags") as refusal:
        words.compiled("structural_tag", tag, "xgrammar")
    assert refusal.value.code == "grammar_unsupported"
    assert (refusal.value.path or "").endswith("json_schema.properties.a.uniqueItems")

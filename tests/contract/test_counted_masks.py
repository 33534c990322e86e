"""Counted bounds against the libraries' own: the whole vocabulary, at every position, both ways round.

llguidance compiles a bound exactly, so its own mask of the schema with the bound is the measure. xgrammar
compiles bounded strings differently from plain ones (without escapes, and with raw control characters, which
are no JSON), so there the measure is its own plain string, written out with the bound in its grammar.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devtools import tinymodel
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from guided_contract.config import PodConfig
from guided_contract.wire import Backend, Load
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.bounds import TEXT, Where
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import followed, vocabulary
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from support import tokenizers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WALKS = settings(
    max_examples=4,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
KEY = "0" * 64
Same = np.ndarray | None  # which tokens are compared; None: all
EOS = 1  # of both tokenizers


class Words:
    """One tokenizer with all that is compiled for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.size = vocabulary.vocab_size
        self.tokens: list[bytes] = vocabulary.tokens
        self.backends = Backends(vocabulary)
        self.loaded = functools.cache(self._loaded)
        self.buffers = [BitmaskBuffer(8, self.size, self.backends) for _ in range(2)]

    def _loaded(self, backend: Backend, kind: str, text: str, count: bool) -> Callable[[], Matcher]:  # noqa: FBT001 - the question itself
        """Load a grammar as a rank does, its bounds counted or compiled."""
        split = followed.split(json.loads(text), backend) if count else followed.Followed(None, [])
        spec = json.dumps(split.schema) if count else text
        compiled = self.backends[backend].compile(kind, spec).source()
        load = Load(key=KEY, backend=backend, spec=compiled, positions=split.positions)
        loaded_grammars = LoadedGrammars(self.backends)
        loaded = loaded_grammars.load(load)
        assert not loaded.error
        assert bool(split.positions) == count
        return lambda: loaded_grammars.matcher(KEY, [EOS])


@pytest.fixture(scope="module", params=["tiny", "awkward"])
def words(request: pytest.FixtureRequest) -> Words:
    if request.param == "awkward":
        return Words(tokenizers.vocabulary())
    model = str(tinymodel.models() / "tiny")
    return Words(
        vocabulary.load(
            PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
        )
    )


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }


SHORT, EMPTY = {"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 0}
MIDDLE, LEAST = {"type": "string", "minLength": 2, "maxLength": 4}, {"type": "string", "minLength": 2}
# schema, texts whose %s are strings; what is behind a string that the bounds refuse is never reached
SCHEMAS: dict[str, tuple[Any, list[str]]] = {
    "the whole text": (MIDDLE, ['"%s"']),
    "two properties": (obj({"a": SHORT, "b": LEAST}), ['{"a":"%s","b":"%s"}', '{ "a" : "%s" , "b" : "%s" }']),
    "items": ({"type": "array", "items": MIDDLE}, ['["%s","%s", "%s"]', "[]"]),
    "null or a string": (
        obj({"a": {"anyOf": [{"type": "null"}, SHORT]}, "b": EMPTY}),
        ['{"a":"%s","b":""}', '{"a":null,"b":"%s"}'],
    ),
    "first items": (
        {"type": "array", "prefixItems": [MIDDLE, {"type": "integer"}], "items": MIDDLE},
        ['["%s",1,"%s"]', '["%s"]'],
    ),
    "other properties": (
        {"type": "object", "properties": {"a": SHORT}, "additionalProperties": LEAST},
        ['{"a":"%s","n":"%s"}', '{"a":"","%s":"%s"}'],
    ),
    "recursion": (
        {"$defs": {"N": obj({"t": SHORT, "n": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/N"}]}})}}
        | {"$ref": "#/$defs/N"},
        ['{"t":"%s","n":{"t":"%s","n":{"t":"%s"'],
    ),
    "beside a pattern": (obj({"a": MIDDLE, "b": {**SHORT, "pattern": "^x"}}), ['{"a":"%s","b":"x%s"}']),
}
# What both libraries let a string hold; llguidance writes no other character as \u.
PLAIN = st.sampled_from(
    ["a", "b", "é", "漢", "🙂", "𝄞", "\\n", '\\"', "\\\\", "\\/", "\\u001f", "\\u007F", " "]
)
ESCAPED = st.sampled_from(
    ["a", "\\u0041", "\\ud83d", "\\ud83d\\ude00", "\\uDBFF", "\\uDC00", "\\uE000", "\\n"]
)


def strings(pieces: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.lists(pieces, max_size=5).map("".join), min_size=3, max_size=3)


class TestAgainstLlguidance:
    @pytest.mark.parametrize("name", SCHEMAS)
    @WALKS
    @given(strings(PLAIN), st.randoms(use_true_random=False))
    def test_masks_and_drafts_are_those_of_the_compiled_bound(
        self, words: Words, name: str, values: list[str], rng: Any
    ) -> None:
        schema, texts = SCHEMAS[name]
        ours = words.loaded("guidance", "json", json.dumps(schema), True)
        theirs = words.loaded("guidance", "json", json.dumps(schema), False)
        for text in texts:
            compare(words, (ours(), theirs()), filled(text, values), rng)


# xgrammar's own plain string, each character once, so that it can be bounded.
CHARACTER = r"""
bounded ::= [^\0-\x1f\"\\\r\n] | "\\" [\"\\/bfnrt] | "\\u" [0-9abcefABCEF] hex hex hex | pair
pair ::= "\\u" [dD] [0-7] hex hex | high | low | high low
high ::= "\\u" [dD] [89abAB] hex hex
low ::= "\\u" [dD] [c-fC-F] hex hex
hex ::= [0-9a-fA-F]
"""
ITS_STRING = 'basic_string ::= (("\\"" basic_string_sub))'


def with_bounded_strings(schema: Any, minimum: int, maximum: int | None) -> str:
    """Return xgrammar's grammar of a schema, each string in it bounded."""
    import xgrammar

    grammar = str(xgrammar.Grammar.from_json_schema(json.dumps(schema)))
    assert ITS_STRING in grammar
    limit = "" if maximum is None else maximum
    return (
        grammar.replace(ITS_STRING, f'basic_string ::= "\\"" bounded{{{minimum},{limit}}} "\\""') + CHARACTER
    )


def same_everywhere(bound: dict[str, Any]) -> list[tuple[Any, list[str]]]:
    return [
        (bound, ['"%s"']),
        (obj({"a": bound, "b": bound}), ['{"a":"%s","b":"%s"}', '{ "a" : "%s" , "b" : "%s" }']),
        ({"type": "array", "items": bound}, ['["%s","%s", "%s"]', "[]"]),
    ]


class TestAgainstXGrammar:
    @pytest.mark.parametrize("maximum", [0, 1, 4])
    @WALKS
    @given(strings(ESCAPED | PLAIN), st.randoms(use_true_random=False))
    def test_masks_and_drafts_are_those_of_its_string_with_a_maximum(
        self, words: Words, maximum: int, values: list[str], rng: Any
    ) -> None:
        self._compare(words, {"type": "string", "maxLength": maximum}, values, rng)

    @pytest.mark.parametrize("bound", [{"minLength": 2, "maxLength": 2}, {"minLength": 3, "maxLength": 4}])
    @WALKS
    @given(strings(PLAIN), st.randoms(use_true_random=False))
    def test_and_with_a_minimum(self, words: Words, bound: Any, values: list[str], rng: Any) -> None:
        """Without surrogate pairs, which that grammar may read as two characters to reach its minimum."""
        same = np.array([b"\\ud" not in token.lower() for token in words.tokens])
        self._compare(words, {"type": "string", **bound}, values, rng, same)

    @staticmethod
    def _compare(words: Words, bound: dict[str, Any], values: list[str], rng: Any, same: Same = None) -> None:
        for schema, texts in same_everywhere(bound):
            text = json.dumps(schema)
            relaxed = followed.split(json.loads(text), "xgrammar").schema
            grammar = with_bounded_strings(relaxed, bound.get("minLength", 0), bound.get("maxLength"))
            ours = words.loaded("xgrammar", "json", text, True)
            theirs = words.loaded("xgrammar", "grammar", grammar, False)
            for template in texts:
                compare(words, (ours(), theirs()), filled(template, values), rng, same)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("name", SCHEMAS)
@WALKS
@given(strings(ESCAPED), st.randoms(use_true_random=False))
def test_masks_hold_what_the_text_may_go_on_with(
    words: Words, name: str, backend: Backend, values: list[str], rng: Any
) -> None:
    """Every token that the plain mask allows is followed byte by byte: it stays if it keeps the bounds."""
    schema, texts = SCHEMAS[name]
    ours = words.loaded(backend, "json", json.dumps(schema), True)
    for text in texts:
        matcher = ours()
        for _ in walked(words, matcher, filled(text, values), rng):
            text_of, matcher.counted = matcher.counted, None
            plain, _ = words.buffers[1].fill([GuidedRows(matcher, 0, 1, [])], 1)
            matcher.counted = text_of
            restricted, _ = words.buffers[0].fill([GuidedRows(matcher, 0, 1, [])], 1)
            assert text_of is not None
            where, bounds = text_of._wheres[0], text_of._rules[0].bounds
            expected = [t for t in allowed(plain[0]) if bounds.advance(where, words.tokens[t]) is not None]
            assert allowed(restricted[0]).tolist() == expected
            assert expected


def test_a_sequence_starts_over_and_its_twin_is_not_moved(words: Words) -> None:
    ours = words.loaded("guidance", "json", json.dumps(SCHEMAS["items"][0]), True)
    one, other = ours(), ours()
    for matcher in (one, other):
        feed(words, matcher, '["abc')
    assert one.counted is not None
    assert one.counted._wheres[0].characters == 3
    assert one.counted._wheres[0].mode == TEXT
    one.reset()
    assert one.counted._wheres[0] == Where()
    assert other.counted is not None
    assert other.counted._wheres[0].characters == 3


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_a_token_that_breaks_a_bound_is_rejected(words: Words, backend: Backend) -> None:
    matcher = words.loaded(backend, "json", json.dumps(SHORT), True)()
    feed(words, matcher, '"abc')
    letter, quote = words.tokens.index(b"a"), words.tokens.index(b'"')
    assert matcher.valid_prefix([letter, quote]) == 0
    assert matcher.valid_prefix([quote, EOS]) == 2
    walk = GuidedRows(matcher, 0, 3, [letter, quote])
    rows, _ = words.buffers[0].fill([walk], walk.end)
    assert (walk.valid, walk.filled) == (0, 1)
    assert (rows[1:] == -1).all()
    assert not matcher.accept([letter])


def filled(text: str, values: list[str]) -> str:
    return text % tuple(values[: text.count("%s")])


def allowed(row: Any) -> Any:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def feed(words: Words, matcher: Matcher, text: str) -> None:
    assert matcher.accept([words.tokens.index(bytes([byte])) for byte in text.encode()])


def walked(words: Words, matcher: Matcher, text: str, rng: Any, same: Same = None) -> Iterator[int]:
    """Yield before every token of a text, cut into tokens at random, as far as the bounds let it come.

    Where the text is at its end or may not go on, any token follows, some more.
    """
    rest, more = text.encode(), 3
    row = np.zeros((1, (words.size + 31) // 32), dtype=np.int32)
    while not matcher.is_terminated() and more:
        matcher.fill(row, 0)
        choices = [token for token in allowed(row[0]) if same is None or same[token]]
        fitting = [t for t in choices if words.tokens[t] and rest.startswith(words.tokens[t])]
        if not fitting:
            rest, more = b"", more - 1
        token = int(rng.choice(fitting or choices))
        yield token
        assert matcher.accept([token])
        rest = rest[len(words.tokens[token]) :]


def compare(words: Words, pair: tuple[Matcher, Matcher], text: str, rng: Any, same: Same = None) -> None:
    """Walk a text in two grammars, whose rows must be equal, after drafts as well."""
    ours, theirs = pair
    for token in walked(words, ours, text, rng, same):
        first = np.zeros((1, (words.size + 31) // 32), dtype=np.int32)
        ours.fill(first, 0)
        likely = token if rng.random() < 0.7 else int(rng.choice(allowed(first[0])))
        drafts = [likely, rng.randrange(2, words.size)]
        if same is not None and not same[drafts].all():
            drafts = []
        walks = [GuidedRows(matcher, 0, 1 + len(drafts), drafts) for matcher in (ours, theirs)]
        rows = [buffer.fill([walk], walk.end)[0] for buffer, walk in zip(words.buffers, walks, strict=True)]
        bits = [np.unpackbits(r.view(np.uint8), axis=1, bitorder="little") != 0 for r in rows]
        for row, differing in enumerate(
            map(np.flatnonzero, (bits[0] != bits[1]) & (True if same is None else same))
        ):
            for other in map(int, differing):
                assert accepts(theirs, [*drafts[:row], other]) == bits[0][row, other], words.tokens[other]
        if same is None:
            assert (walks[0].valid, walks[0].filled) == (walks[1].valid, walks[1].filled)
            assert ours.valid_prefix(drafts) == theirs.valid_prefix(drafts)
        assert theirs.accept([token])


def accepts(matcher: Any, tokens: list[int]) -> bool:
    """Tell whether a grammar takes these tokens: now and then xgrammar's mask lacks one of them."""
    return matcher.backend == "xgrammar" and matcher.valid_prefix(tokens) == len(tokens)

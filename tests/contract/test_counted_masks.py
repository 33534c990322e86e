"""Counted bounds against the libraries' own: the whole vocabulary, at every position, both ways round.

llguidance compiles a bound exactly, so its own mask of the schema with the bound is the measure. xgrammar
compiles bounded strings differently from plain ones (without escapes, and with raw control characters, which
are no JSON), so there the measure is its own plain string, written out with the bound in its grammar.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from guided_contract.wire import Backend, Load
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from guided_sidecar.grammar.compile import followed
from support.worker_and_rank import EOS, WorkerAndRank

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WALKS = settings(
    max_examples=4,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
Same = np.ndarray | None  # which tokens are compared; None: all


@pytest.fixture(scope="module", params=["tiny", "awkward"])
def served(request: pytest.FixtureRequest) -> WorkerAndRank:
    return WorkerAndRank.of(request.param)


def counted(served: WorkerAndRank, schema: Any, backend: Backend) -> Callable[[], Matcher]:
    """Load a schema as a rank does, its bounds counted and all else as it is written."""
    text = json.dumps(schema)
    split = followed.split(json.loads(text), backend)
    assert split.positions
    spec = served.backends[backend].compile("json", json.dumps(split.schema)).source()
    load = Load(key=f"{backend} {text}", backend=backend, spec=spec, positions=split.positions)
    assert not served.ranks.load(load).error
    return lambda: served.ranks.matcher(load.key, [EOS])


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


@pytest.mark.parametrize("name", SCHEMAS)
@WALKS
@given(strings(PLAIN), st.randoms(use_true_random=False))
def test_masks_and_drafts_are_those_of_llguidances_compiled_bound(
    served: WorkerAndRank, name: str, values: list[str], rng: Any
) -> None:
    schema, texts = SCHEMAS[name]
    ours = counted(served, schema, "guidance")
    theirs = served.backends["guidance"].compile("json", json.dumps(schema))
    for text in texts:
        compare(served, (ours(), theirs.matcher([EOS])), filled(text, values), rng)


# xgrammar's own plain string, each character once, so that it can be bounded.
CHARACTER = r"""
bounded ::= [^\0-\x1f\"\\\r\n] | "\\" [\"\\/bfnrt] | "\\u" [0-9abcefABCEF] hex hex hex | pair
pair ::= "\\u" [dD] [0-7] hex hex | high | low | high low
high ::= "\\u" [dD] [89abAB] hex hex
low ::= "\\u" [dD] [c-fC-F] hex hex
hex ::= [0-9a-fA-F]
"""
ITS_STRING = 'basic_string ::= (("\\"" basic_string_sub))'


def with_bounded_strings(schema: Any, minimum: int, maximum: int) -> str:
    """Return xgrammar's grammar of a schema, each string in it bounded."""
    import xgrammar

    grammar = str(xgrammar.Grammar.from_json_schema(json.dumps(schema)))
    assert ITS_STRING in grammar
    bounded = f'basic_string ::= "\\"" bounded{{{minimum},{maximum}}} "\\""'
    return grammar.replace(ITS_STRING, bounded) + CHARACTER


def same_everywhere(string: dict[str, Any]) -> list[tuple[Any, list[str]]]:
    return [
        (string, ['"%s"']),
        (obj({"a": string, "b": string}), ['{"a":"%s","b":"%s"}', '{ "a" : "%s" , "b" : "%s" }']),
        ({"type": "array", "items": string}, ['["%s","%s", "%s"]', "[]"]),
    ]


@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (0, 4), (2, 2), (3, 4)])
@WALKS
@given(strings(ESCAPED | PLAIN), st.randoms(use_true_random=False))
def test_masks_and_drafts_are_those_of_xgrammars_string_with_bounds(
    served: WorkerAndRank, bounds: tuple[int, int], values: list[str], rng: Any
) -> None:
    minimum, maximum = bounds
    same = None
    if minimum:  # surrogate pairs that grammar may read as two characters to reach its minimum
        same = np.array([b"\\ud" not in token.lower() for token in served.tokens])
        values = [value.replace("\\u", "") for value in values]
    bounded = same_everywhere({"type": "string", "minLength": minimum, "maxLength": maximum})
    for (schema, texts), (plain, _) in zip(bounded, same_everywhere({"type": "string"}), strict=True):
        ours = counted(served, schema, "xgrammar")
        grammar = with_bounded_strings(plain, minimum, maximum)
        theirs = served.backends["xgrammar"].compile("grammar", grammar)
        for text in texts:
            compare(served, (ours(), theirs.matcher([EOS])), filled(text, values), rng, same)


def filled(text: str, values: list[str]) -> str:
    return text % tuple(values[: text.count("%s")])


def walked(served: WorkerAndRank, matcher: Matcher, text: str, rng: Any, same: Same = None) -> Iterator[int]:
    """Yield before every token of a text, cut into tokens at random, as far as the bounds let it come.

    Where the text is at its end or may not go on, any token follows, some more.
    """
    rest, more = text.encode(), 3
    while not matcher.is_terminated() and more:
        choices = np.flatnonzero(served.allowed(matcher) & (True if same is None else same)).tolist()
        fitting = [t for t in choices if served.tokens[t] and rest.startswith(served.tokens[t])]
        if not fitting:
            rest, more = b"", more - 1
        token = rng.choice(fitting or choices)
        yield token
        assert matcher.accept([token])
        rest = rest[len(served.tokens[token]) :]


def compare(
    served: WorkerAndRank, pair: tuple[Matcher, Matcher], text: str, rng: Any, same: Same = None
) -> None:
    """Walk a text in two grammars, whose rows must be equal, after drafts as well."""
    ours, theirs = pair
    buffers = [BitmaskBuffer(8, served.words.vocab_size, served.backends) for _ in pair]
    for token in walked(served, ours, text, rng, same):
        likely = token if rng.random() < 0.7 else rng.choice(np.flatnonzero(served.allowed(ours)).tolist())
        drafts = [likely, rng.randrange(2, len(served.tokens))]
        if same is not None and not same[drafts].all():
            drafts = []
        walks = [GuidedRows(matcher, 0, 1 + len(drafts), drafts) for matcher in (ours, theirs)]
        rows = [buffer.fill([walk], walk.end)[0] for buffer, walk in zip(buffers, walks, strict=True)]
        bits = [np.unpackbits(r.view(np.uint8), axis=1, bitorder="little") != 0 for r in rows]
        for row, differing in enumerate(
            map(np.flatnonzero, (bits[0] != bits[1]) & (True if same is None else same))
        ):
            for other in map(int, differing):
                assert accepts(theirs, [*drafts[:row], other]) == bits[0][row, other], served.tokens[other]
        if same is None:
            assert (walks[0].valid, walks[0].filled) == (walks[1].valid, walks[1].filled)
            assert ours.valid_prefix(drafts) == theirs.valid_prefix(drafts)
        assert theirs.accept([token])


def accepts(matcher: Any, tokens: list[int]) -> bool:
    """Tell whether a grammar takes these tokens: now and then xgrammar's mask lacks one of them."""
    return matcher.backend == "xgrammar" and matcher.valid_prefix(tokens) == len(tokens)

"""Masks kept inside plain strings: row by row what xgrammar itself fills, whatever string and tokens."""

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xgrammar
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_grammar.registry import Backends
from guided_grammar.walk import Walk
from guided_grammar.xgrammar.matcher import XGrammarMatcher
from guided_grammar.xgrammar.strings import PlainStrings, PlainTokens
from guided_sidecar.grammar.compile import vocabulary
from support.grammars import BOUNDED, PERSON

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# Tokens that end a string and go on, that hold parts of escapes and of characters, and ordinary ones.
AWKWARD = [
    *(bytes([byte]) for byte in range(256)),
    *(b'","', b'":"', b'":', b'": "', b'"}', b'"]', b'"],"', b'" ', b'""', b'"a', b'a"', b'a","b'),
    *(b"\\u00", b"\\ud8", b"3d\\ud", b'\\"', b"\\\\", b"a\\", b'\\\\"', b"n\\n", b"\\nz", b"0041"),
    *("é".encode(), "漢字".encode(), "🙂".encode(), "🙂".encode()[:2], "🙂".encode()[2:]),
    *(b"the", b" quick", b"zz", b"\x7fz", b"z\n", b"\tz", b"z z", b"\xc3z"),
    *(b"{", b"[1", b"true", b"null", b"12", b", "),
    b"</s>",
]
STOP = len(AWKWARD) - 1
STRING = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: dict[str, Any] = {
    "plain": closed(a=STRING, b=STRING),
    "free": {"type": "object"},
    "nested": closed(a={"type": "array", "items": closed(b={"type": "array", "items": STRING})}),
    "either": closed(a={"anyOf": [STRING, {"type": "null"}, {"enum": ["the", "thez"]}]}, b={"type": "array"}),
    "two strings": closed(a={"anyOf": [STRING, closed(c=STRING), {"type": "array", "items": STRING}]}),
    "pattern": closed(b=STRING, a={"type": "string", "pattern": "^z*[a-z]+z$"}),
    "bounded": closed(a={"type": "string", "minLength": 2, "maxLength": 6}, b=STRING),
    "format": closed(a={"type": "string", "format": "date"}, b=STRING),
    "keys": {"type": "object", "additionalProperties": STRING},
    "patterned keys": closed(b=STRING, a={"type": "object", "patternProperties": {"^z": STRING}}),
    "string alone": STRING,
}


class Tokenizer:
    """A tokenizer for xgrammar, as a BitmaskBuffer asks for it."""

    def __init__(self, info: Any) -> None:
        self.info = info
        self.plain = PlainTokens(info)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=2)

    def native(self, _name: str) -> Any:
        return self.info

    def buffer(self) -> BitmaskBuffer:
        return BitmaskBuffer(16, self.info.vocab_size, Backends(self))


def _awkward() -> Any:
    vocab_type = xgrammar.VocabType.RAW
    return xgrammar.TokenizerInfo(AWKWARD, vocab_type, vocab_size=len(AWKWARD) + 70, stop_token_ids=[STOP])


def _tiny() -> Any:
    model = str(tinymodel.models() / "tiny")
    pod = PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
    return vocabulary.load(pod).native("xgrammar")


@pytest.fixture(scope="module", params=[_awkward, _tiny], ids=["awkward tokens", "tiny model"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(request.param())


def allowed(row: np.ndarray, vocab_size: int) -> list[int]:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[:vocab_size]).tolist()


class Pair:
    """A matcher of ours and xgrammar's own, taken along the same tokens."""

    def __init__(self, tokenizer: Tokenizer, compiled: Any, strings: PlainStrings | None) -> None:
        self.buffer = tokenizer.buffer()
        self.ours = XGrammarMatcher(compiled, None, strings)
        self.native = xgrammar.GrammarMatcher(compiled)
        self.vocab_size = tokenizer.info.vocab_size
        self.words = (self.vocab_size + 31) // 32

    def expected(self, drafts: Sequence[int]) -> tuple[np.ndarray, int]:
        rows = np.full((1 + len(drafts), self.words), -1, dtype=np.int32)
        valid = 0
        for row in range(1 + len(drafts)):
            self.native.fill_next_token_bitmask(rows, row)
            if row == len(drafts) or not self.native.accept_token(drafts[row]):
                break
            valid += 1
            if self.native.is_terminated():
                break
        self.native.rollback(valid)
        return rows, valid

    def check(self, drafts: list[int]) -> np.ndarray:
        """Compare this step's rows; return the first."""
        walk = Walk(self.ours, 0, 1 + len(drafts), drafts)
        bitmask, _ = self.buffer.fill([walk], walk.end)
        assert walk.error is None
        expected, valid = self.expected(drafts)
        assert walk.valid == valid
        np.testing.assert_array_equal(bitmask, expected)
        return expected[0]

    def accept(self, tokens: list[int]) -> None:
        assert self.ours.accept(tokens)
        for token in tokens:
            assert self.native.accept_token(token)


def walk_at_random(pair: Pair, plain: frozenset[int], seed: int, steps: int) -> None:
    """Take random steps with random drafts, mostly along strings, checking every row."""
    rng = random.Random(seed)

    def choose(choices: list[int]) -> int:
        inside = [token for token in choices if token in plain]
        return rng.choice(inside if inside and rng.random() < 0.75 else choices)

    for _ in range(steps):
        drafts: list[int] = []
        for _ in range(rng.randrange(4)):
            choices = _choices_after(pair, drafts)
            if not choices or STOP in drafts or 1 in drafts:
                break
            drafts.append(choose(choices))
        if drafts and rng.random() < 0.3:
            drafts[rng.randrange(len(drafts))] = rng.randrange(3, pair.words * 32 + 40)  # also outside it
        first = pair.check(drafts)
        accepted, left = [], allowed(first, pair.vocab_size)
        for draft in drafts:
            if draft not in left or rng.random() < 0.2:
                break
            accepted.append(draft)
            left = _choices_after(pair, accepted)
        if not left:
            pair.accept(accepted)
            return
        pair.accept([*accepted, choose(left)])
        if pair.native.is_terminated():
            return


def walk_all(pairs: Sequence[Pair], plain: frozenset[int]) -> None:
    for seed, pair in enumerate(pairs):
        walk_at_random(pair, plain, seed, 60)


def _choices_after(pair: Pair, tokens: Sequence[int]) -> list[int]:
    rows = np.zeros((1, pair.words), dtype=np.int32)
    taken = 0
    try:
        for token in tokens:
            if not pair.native.accept_token(token):
                return []
            taken += 1
        if pair.native.is_terminated():
            return []
        pair.native.fill_next_token_bitmask(rows, 0)
    finally:
        pair.native.rollback(taken)
    return allowed(rows[0], pair.vocab_size)


@pytest.mark.parametrize("name", SCHEMAS)
def test_rows_are_what_xgrammar_fills(tokenizer: Tokenizer, name: str) -> None:
    compiled = tokenizer.compiler.compile_json_schema(json.dumps(SCHEMAS[name]))
    strings = PlainStrings.of(compiled, tokenizer.plain)
    assert strings is not None
    pairs = [Pair(tokenizer, compiled, strings) for _ in range(6)]
    walk_all(pairs, tokenizer.plain.tokens)
    assert sum(pair.buffer.counts.reused for pair in pairs) > 20


def test_strings_of_other_rules_are_never_taken_for_plain(tokenizer: Tokenizer) -> None:
    """A maxLength or a pattern is a rule of its own; inside it each row is filled."""
    text = b'{"a": "zz'
    for bound in ({"pattern": "^z*[a-z]+z$"}, {"minLength": 2, "maxLength": 6}, {"enum": ["zzz", "zzzz"]}):
        schema = closed(a={"type": "string", **bound}, b=STRING)
        compiled = tokenizer.compiler.compile_json_schema(json.dumps(schema))
        pair = Pair(tokenizer, compiled, PlainStrings.of(compiled, tokenizer.plain))
        texts = list(tokenizer.info.decoded_vocab)
        for byte in text:
            pair.check([])
            pair.accept([texts.index(bytes([byte]))])
        pair.check([])
        assert pair.buffer.counts.reused == 0


def test_which_grammars_have_plain_strings(tokenizer: Tokenizer) -> None:
    compiler, plain = tokenizer.compiler, tokenizer.plain

    def has(compiled: Any) -> bool:
        return PlainStrings.of(compiled, plain) is not None

    assert has(compiler.compile_json_schema(PERSON))
    assert has(compiler.compile_json_schema(BOUNDED)) is False
    assert has(compiler.compile_builtin_json_grammar()) is False  # its rules are written otherwise
    assert not has(compiler.compile_regex('"[a-z]*"'))
    assert not has(compiler.compile_json_schema('{"enum": ["a", "b"]}'))
    lookalike = 'root ::= "\\"" basic_string_sub\nbasic_string_sub ::= "\\"" | [^"] basic_string_sub'
    assert not has(compiler.compile_grammar(lookalike))


def test_a_kept_mask_does_not_outlive_its_string(tokenizer: Tokenizer) -> None:
    """Reset, a request that comes again, a fill that was not followed by a sample."""
    compiled = tokenizer.compiler.compile_json_schema(json.dumps(SCHEMAS["plain"]))
    pair = Pair(tokenizer, compiled, PlainStrings.of(compiled, tokenizer.plain))
    texts = list(tokenizer.info.decoded_vocab)
    opening = [texts.index(bytes([byte])) for byte in b'{"a": "']
    z, quote = texts.index(b"z"), texts.index(b'"')
    for token in opening:
        pair.accept([token])
    for drafts in ([z, z], [z, quote], [quote], [z], []):
        pair.check(drafts)
    pair.accept([z])
    pair.check([z])
    assert pair.ours.string_mask is not None
    pair.accept([z, quote])
    pair.check([])
    assert pair.ours.string_mask is None
    pair.ours.reset()
    pair.native.reset()
    pair.check(opening[:3])


def test_a_plain_string_takes_every_plain_token_and_is_the_same_after_it(tokenizer: Tokenizer) -> None:
    """So a draft that is plain needs no look at the mask, and the native matcher need not be told of it."""
    compiled = tokenizer.compiler.compile_json_schema(json.dumps(SCHEMAS["nested"]))
    pair = Pair(tokenizer, compiled, PlainStrings.of(compiled, tokenizer.plain))
    texts = list(tokenizer.info.decoded_vocab)
    for byte in b'{"a": [{"b": ["':
        pair.accept([texts.index(bytes([byte]))])
    before = pair.check([])
    plain = tokenizer.plain.tokens
    assert plain <= set(allowed(before, pair.vocab_size))
    for token in sorted(plain)[:: max(1, len(plain) // 200)]:
        assert pair.native.accept_token(token)
        np.testing.assert_array_equal(pair.expected([])[0][0], before)
        pair.native.rollback(1)

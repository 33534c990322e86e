"""Special tokens are no text: readers of an answer do not see them, so no string and no free text holds one.

Judged from outside: whatever is generated is decoded as vLLM decodes it, without special tokens.
"""

import functools
import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from guided_contract.errors import GuidedError
from guided_contract.wire import Backend, Load
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Job
from support import tokenizers

pytestmark = pytest.mark.usefixtures("unhurried")

SPECIAL = frozenset(tokenizers.chat().all_special_ids) | {
    number for number, token in tokenizers.chat().added_tokens_decoder.items() if token.special
}
EOS = tokenizers.EOS
NAMED = {"const": "x<|im_end|>y"}
SPELLED = {"type": "string", "pattern": r"^<\|sép\|>[b-z]+$"}
BOUNDED = {"type": "string", "minLength": 3, "maxLength": 9}
OBJECT = {"type": "object", "properties": {"<|im_end|>": BOUNDED}, "required": ["<|im_end|>"]}
CASES: dict[str, tuple[Any, Any]] = {
    "string": ("json", {"type": "string"}),
    "bounded": ("json", BOUNDED),
    "pattern": ("json", {"type": "string", "pattern": "^[a-zA-Z<>|_/]+$"}),
    "format": ("json", {"type": "string", "format": "email"}),
    "any": ("json", {"type": "object", "additionalProperties": True}),
    "const": ("json", NAMED),
    "name": ("json", OBJECT),
    "spelled pattern": ("json", SPELLED),
    "regex": ("regex", '[^"]{1,9}'),
    "dot": ("regex", ".{1,9}"),
    "named regex": ("regex", r"x<\|im_end\|>y"),
    "choice": ("choice", ["<|im_end|>", "[TOOL]"]),
    "EBNF": ("grammar", "root ::= [^a]{1,9}"),
    "named EBNF": ("grammar", 'root ::= "x<|im_end|>y"'),
    "Lark": ("grammar", "start: /.{1,9}/"),
}
TEXT_OF = {
    "regex": '[^"]{1,9}',
    "dot": ".{1,9}",
    "named regex": r"x<\|im_end\|>y",
    "choice": r"<\|im_end\|>|\[TOOL\]",
    "EBNF": "[^a]{1,9}",
    "named EBNF": r"x<\|im_end\|>y",
    "Lark": ".{1,9}",
}


class Rank:
    """Compiles as a worker does, and makes masks as a rank does."""

    def __init__(self) -> None:
        words = tokenizers.vocabulary(tokenizers.chat())
        self._backends = Backends(words)
        self._compiler = Compiler(self._backends, words)
        self._loaded_grammars = LoadedGrammars(self._backends)
        self._buffer = BitmaskBuffer(1, words.vocab_size, self._backends)
        self.vocab_size = words.vocab_size
        self.tokens = words.tokens

    def matcher(self, backend: Backend, kind: Any, spec: Any) -> Matcher:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        job = Job(
            key=f"k{abs(hash((backend, text)))}",
            kind=kind,
            spec=text,
            backends=[backend],
            timeout_s=60,
            memory_bytes=1 << 40,
        )
        done = self._compiler.run(job)
        load = Load(
            key=job.key,
            backend=backend,
            spec=done.spec,
            positions=done.positions,
        )
        assert not self._loaded_grammars.load(load).error
        return self._loaded_grammars.matcher(job.key, [EOS])

    def allowed(self, matcher: Matcher) -> set[int]:
        bitmask, _ = self._buffer.fill([GuidedRows(matcher, 0, 1, ())], 1)
        bits = np.unpackbits(np.ascontiguousarray(bitmask[0]).view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits[: self.vocab_size]).tolist())


@pytest.fixture(scope="module")
def rank() -> Rank:
    return Rank()


def follow(rank: Rank, matcher: Matcher, *texts: str) -> set[int]:
    """Accept special tokens by their texts and other texts byte by byte; return what is allowed then."""
    tokenizer = tokenizers.chat()
    for text in texts:
        numbers = [tokenizer.convert_tokens_to_ids(text)] if text in tokenizers.SPECIAL else spelled(text)
        assert matcher.accept(numbers), text
    return rank.allowed(matcher)


@functools.cache
def _tokens() -> list[bytes]:
    return tokenizers.vocabulary().tokens


def spelled(text: str) -> list[int]:
    """Return the tokens of a text's bytes, one by one."""
    tokens = _tokens()
    return [tokens.index(bytes([byte])) for byte in text.encode()]


def drawn(rank: Rank, matcher: Matcher, chooser: random.Random) -> list[int]:
    """Return tokens to the text's end, special ones wherever one is allowed."""
    taken: list[int] = []
    while not matcher.is_terminated():
        allowed = sorted(rank.allowed(matcher))
        special = [token for token in allowed if token in SPECIAL and token != EOS]
        ends = [token for token in allowed if token == EOS or b'"' in rank.tokens[token]]
        among = special or (ends if len(taken) > 20 else None) or allowed
        taken.append(chooser.choice(among))
        assert matcher.accept(taken[-1:])
        if len(taken) > 300:
            return []
    return taken


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("name", CASES)
def test_an_answer_without_its_special_tokens_still_matches(rank: Rank, backend: Any, name: str) -> None:
    kind, spec = CASES[name]
    try:
        matcher = rank.matcher(backend, kind, spec)
    except GuidedError as refusal:
        assert refusal.code == "grammar_unsupported"  # noqa: PT017 - the other way out
        assert (backend == "xgrammar") == (name == "Lark")
        assert re.search("special token|reads (EBNF|Lark)", refusal.message)  # noqa: PT017 - as above
        return
    chooser = random.Random(name)
    texts = []
    for _ in range(9):
        matcher.reset()
        texts.append(tokenizers.chat().decode(drawn(rank, matcher, chooser), skip_special_tokens=True))
    whole = [text for text in texts if text and "\ufffd" not in text]  # a byte alone may be no character
    assert whole
    for text in whole:
        if kind == "json":
            jsonschema.validate(json.loads(text), spec)
        else:
            assert re.fullmatch(TEXT_OF[name], text, re.DOTALL), text


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("name", ["string", "bounded", "pattern", "any", "dot", "regex"])
def test_no_special_token_is_allowed_in_text(rank: Rank, backend: Any, name: str) -> None:
    """One library's masks allowed 999 of 1,000 such tokens there."""
    matcher = rank.matcher(backend, *CASES[name])
    begun = {"any": '{"b":"b', "dot": "b", "regex": "b"}.get(name, '"bb')

    allowed = follow(rank, matcher, begun)

    assert not (allowed & SPECIAL) - {EOS}
    assert set(spelled("b")) <= allowed
    assert EOS in follow(rank, matcher, {"any": '"}', "dot": "", "regex": ""}.get(name, 'b"'))


TAG = {"begin": "<|im_start|>call[TOOL]", "end": "<|sép|>"}
OLD = {"structures": [{**TAG, "schema": {"type": "string"}}], "triggers": ["<|im_start|>"]}
NEW = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<|im_start|>"],
        "tags": [
            {"type": "tag", **TAG, "content": {"type": "json_schema", "json_schema": {"type": "string"}}}
        ],
    },
}
FORCED = {"type": "structural_tag", "format": NEW["format"]["tags"][0]}


@pytest.mark.parametrize("tag", [OLD, NEW, FORCED], ids=["old form", "triggered", "forced"])
def test_a_tag_that_names_special_tokens_means_them(rank: Rank, tag: Any) -> None:
    matcher = rank.matcher("xgrammar", "structural_tag", tag)
    numbers = dict(
        zip(tokenizers.SPECIAL, tokenizers.chat().convert_tokens_to_ids(tokenizers.SPECIAL), strict=True)
    )

    assert numbers["<|im_start|>"] in follow(rank, matcher)
    assert follow(rank, matcher, "<|im_start|>", "call") & SPECIAL == {numbers["[TOOL]"]}
    assert not follow(rank, matcher, "[TOOL]", '"b') & SPECIAL
    assert follow(rank, matcher, '"') & SPECIAL == {numbers["<|sép|>"]}
    assert EOS in follow(rank, matcher, "<|sép|>")


def test_who_spells_a_trigger_out_has_begun_the_tag(rank: Rank) -> None:
    matcher = rank.matcher("xgrammar", "structural_tag", NEW)

    assert set(spelled("x")).isdisjoint(follow(rank, matcher, "<|im_start|" + ">call"))


def test_a_lark_grammar_that_names_a_special_token_means_it(rank: Rank) -> None:
    text = 'start: "x" <|im_end|> /[^"]{1,3}/  // not "<|im_end|>"'

    matcher = rank.matcher("guidance", "grammar", text)

    assert follow(rank, matcher, "x") == {tokenizers.chat().convert_tokens_to_ids("<|im_end|>")}
    assert not follow(rank, matcher, "<|im_end|>") & SPECIAL

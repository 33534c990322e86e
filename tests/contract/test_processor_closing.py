"""Closing beside the grammar libraries: texts of random logits, whose ends jsonschema judges."""

import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from guided_contract.backends import Backend
from guided_engine.processors.closing import Closing
from guided_engine.processors.interface import Context
from guided_engine.testing import Harness
from guided_grammar.matching import Matcher
from support.worker_and_rank import EOS, WorkerAndRank

MOST = 80
STRING = {"type": "string"}


def obj(*optional: str, **properties: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


SCHEMAS: dict[str, Any] = {
    "required ones": obj(name={**STRING, "minLength": 1}, age={"type": "integer"}, ok={"type": "boolean"}),
    "optional ones": obj("a", "b", a=STRING, b=array(STRING)),
    "nested": obj(a=obj(b=obj(c=array(array(STRING))), d={"type": ["null", "string"]})),
    "objects": array(obj(a=STRING, b={"type": "number"})),
    "some items": obj(a=array(STRING, minItems=4)),
    "anything": {"type": ["object", "array", "string"]},
    "names": obj(a=array({"enum": ["x", "yy"]}), b={**STRING, "pattern": "^[a-z]{3,8}$"}),
}


@pytest.fixture(scope="module", params=["tiny", "awkward"])
def words(request: pytest.FixtureRequest) -> WorkerAndRank:
    return WorkerAndRank.of(request.param)


def harness(words: WorkerAndRank, within: int) -> Harness:
    context = Context(vocab_size=len(words.tokens), token_bytes=words.tokens, stop_tokens=frozenset({EOS}))
    return Harness(Closing, {"within": within}, context)


def matcher(words: WorkerAndRank, backend: Backend, schema: Any) -> Matcher:
    return words.backends[backend].compile("json", json.dumps(schema)).matcher([EOS])


def written(words: WorkerAndRank, matcher: Matcher, rank: Harness | None, seed: int) -> tuple[bytes, bool]:
    """Return a text of random logits under a grammar, and whether it came to its end."""
    size = len(words.tokens)
    noise = np.random.default_rng(seed)
    sequence = rank.sequence(max_tokens=MOST) if rank else None
    matcher.reset()
    text = b""
    for _ in range(MOST):
        [logits] = noise.normal(scale=1 + 3 * (seed % 2), size=(1, size)).astype(np.float32)
        if sequence:
            [logits] = sequence.rows(logits[None])
        # The Gumbel trick: the largest of these is drawn as from the softmax.
        token = int(np.where(words.allowed(matcher), logits + noise.gumbel(size=size), -np.inf).argmax())
        assert matcher.accept([token])
        if token == EOS:
            return text, True
        if sequence:
            sequence.accept(token)
        text += words.tokens[token]
    return text, False


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_texts_come_to_their_end_that_did_not(words: WorkerAndRank, backend: Backend) -> None:
    rank = harness(words, 40)
    without = 0
    for name, schema in SCHEMAS.items():
        judge = jsonschema.Draft202012Validator(schema)
        grammar = matcher(words, backend, schema)
        for seed in range(5):
            without += written(words, grammar, None, seed)[1]
            text, is_over = written(words, grammar, rank, seed)
            assert is_over, (name, seed, text)
            judge.validate(json.loads(text.decode(errors="replace"), strict=False))
    assert without < 0.7 * 5 * len(SCHEMAS), "random texts end by themselves, so this shows nothing"


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_what_the_grammar_demands_is_not_cut_short(words: WorkerAndRank, backend: Backend) -> None:
    grammar = matcher(words, backend, obj(a=array(STRING, minItems=100)))
    text, is_over = written(words, grammar, harness(words, 40), seed=0)
    assert not is_over
    assert text.count(b'"') > 20

"""Masks are vLLM's: our compile calls against its own backend classes, token for token along random walks."""

import json
import random
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.wire import Kind
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_grammar.texts import is_lark
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from support import grammars
from support.worker_and_rank import WorkerAndRank

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
STEPS = 40
EOS = tinymodel.EOS


@pytest.fixture(scope="module")
def tiny() -> WorkerAndRank:
    return WorkerAndRank.of("tiny")


@pytest.fixture(scope="module")
def upstream() -> Any:
    """vLLM's two backends for the tiny model, flexible whitespace."""
    from vllm.tokenizers import get_tokenizer
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend as Guidance
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend as XGrammar

    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(
            disable_any_whitespace=False, disable_additional_properties=False
        ),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")),
        speculative_config=None,
    )
    tokenizer = get_tokenizer(str(tinymodel.models() / "tiny"))
    return {
        "xgrammar": XGrammar(config, tokenizer=tokenizer, vocab_size=tinymodel.VOCAB),
        "guidance": Guidance(config, tokenizer=tokenizer, vocab_size=tinymodel.VOCAB),
    }


CASES = [(backend, name) for backend in ("xgrammar", "guidance") for name in grammars.OF_EVERY_KIND]
CASES.remove(("xgrammar", "Lark"))  # llguidance alone reads it
CASES.remove(("guidance", "structural tag"))  # upstream's enforces no schema: test_structural_tags.py


@pytest.mark.parametrize(("backend", "name"), CASES)
def test_masks_are_vllms(tiny: WorkerAndRank, upstream: Any, backend: Any, name: str) -> None:
    kind, spec = grammars.OF_EVERY_KIND[name]
    ours = tiny.backends[backend].compile(kind, "" if kind == "json_object" else spec)
    theirs = upstream[backend].compile_grammar(*_upstream_request(backend, kind, spec))
    texts = _texts(tiny.words, upstream["xgrammar"], ours.vocab_size)
    assert _walk(ours.matcher(), theirs, texts, seed=name) > 0


NAMED = {"type": "object", "properties": {"größe": {}}, "required": ["größe"]}


@pytest.mark.parametrize(
    ("kind", "spec", "text"),
    [
        ("json", NAMED, '{"größe": null}'),
        ("json", {"enum": ["größe"]}, '"größe"'),
        ("choice", ["größe"], "größe"),
        ("regex", "größe", "größe"),
        ("regex", r"[\s]0[ß]e", " 0ße"),
        ("regex", "\x7fe", "\x7fe"),
        ("grammar", 'root ::= "größe"', "größe"),
        ("regex", "[a^]", "a"),
        ("grammar", r"root ::= [\^a]", "a"),
        ("grammar", r"root ::= [\^-z]", "_"),
    ],
    ids=str,
)
def test_characters_that_xgrammar_escapes_are_not_lost_on_the_way(
    tiny: WorkerAndRank, kind: Kind, spec: Any, text: str
) -> None:
    """xgrammar 0.2.8: `compile_grammar` of a Grammar reads back "\u00df" and "e" as one character."""
    assert tiny.takes(tiny.matcher(kind, spec, "xgrammar", is_proven=False), text)


def test_lark_is_told_as_vllm_does() -> None:
    from vllm.v1.structured_output.utils import grammar_is_likely_lark

    texts = ('root ::= "a"', 'start: "a"', "// x ::= y\nstart: /a/", "# only a comment", 'a: "b" ::= c')
    assert list(map(is_lark, texts)) == list(map(grammar_is_likely_lark, texts))


def _upstream_request(backend: str, kind: Kind, spec: str) -> tuple[Any, str]:
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions as Options
    from vllm.v1.structured_output.utils import choice_as_grammar

    if kind == "choice" and backend == "xgrammar":  # as its validator rewrites the request
        return Options.GRAMMAR, choice_as_grammar(json.loads(spec))
    return Options[kind.upper()], spec


def _texts(words: Vocabulary, vllms: Any, vocab_size: int) -> Any:
    """Return the row of tokens that a reader of the answer sees, or that end it; no other is text for us.

    Nor is one with a control character that ends no line (upstream has them in bounded strings), or with a
    byte that no UTF-8 has (xgrammar 0.2.7 allows them).
    """
    hidden = {*vllms.tokenizer.all_special_ids} - {EOS}
    others = re.compile(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\xc0\xc1\xf5-\xff]")
    shown = [
        token == EOS or (token not in hidden and text != b"" and not others.search(text))
        for token, text in enumerate(words.tokens)
    ]
    bits = np.zeros(32 * mask_words(vocab_size), dtype=bool)
    bits[: len(shown)] = shown
    return np.packbits(bits, bitorder="little").view(np.int32)


def _walk(ours: Matcher, theirs: Any, texts: Any, seed: str) -> int:
    """Walk both grammars with the same random tokens, and return the number of masks equal for `texts`."""
    import torch

    chooser = random.Random(seed)
    mask: Any = np.empty((1, len(texts)), dtype=np.int32)  # [1, ceil(vocab / 32)] int32
    wanted = torch.full(mask.shape, -1, dtype=torch.int32)
    for step in range(STEPS):
        mask.fill(-1)  # xgrammar leaves it as it is where every token is allowed
        ours.fill(mask, 0)
        wanted.fill_(-1)
        theirs.fill_bitmask(wanted, 0)
        assert (mask & texts == wanted.numpy() & texts).all(), f"masks differ after {step} tokens"
        bits = np.unpackbits((mask & texts).view(np.uint8), bitorder="little")
        token = int(chooser.choice(np.flatnonzero(bits)))
        assert ours.accept([token])
        assert theirs.accept_tokens("walk", [token])
        if ours.is_terminated():
            return step + 1
    return STEPS

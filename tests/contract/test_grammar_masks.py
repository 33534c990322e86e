"""Masks are vLLM's: our compile calls against its own backend classes, token for token along random walks."""

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.wire import Kind
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_grammar.texts import choice_as_ebnf, is_lark
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from support import grammars
from support.engine import pod_config

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
STEPS = 40
EOS = tinymodel.EOS


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary.load(pod_config(tmp_path_factory.mktemp("pod")))


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
def test_masks_are_vllms(words: Vocabulary, upstream: Any, backend: str, name: str) -> None:
    kind, spec = grammars.OF_EVERY_KIND[name]
    compiler = Backends(words)[backend]
    ours = compiler.compile(kind, "" if kind == "json_object" else spec)

    theirs = upstream[backend].compile_grammar(*_upstream_request(backend, kind, spec))

    assert _walk(ours.matcher(), theirs, _texts(words, upstream["xgrammar"], ours.vocab_size), seed=name) > 0


PART = {"begin": "<f>", "schema": json.loads(grammars.PERSON), "end": "</f>"}
TAGS = {
    "old": {"structures": [PART], "triggers": ["<f"]},
    "new": {
        "type": "structural_tag",
        "format": {"type": "json_schema", "json_schema": json.loads(grammars.PERSON)},
    },
    "special": {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": ["<|eos|>"],
            "tags": [{"begin": "<|eos|>f", "content": {"type": "any_text"}, "end": "</f>"}],
        },
    },
}


@pytest.mark.parametrize("name", TAGS)
def test_a_rank_makes_of_a_tag_what_the_worker_made(words: Vocabulary, name: str) -> None:
    compiled = Backends(words)["xgrammar"].compile("structural_tag", json.dumps(TAGS[name]))
    loaded = Backends(words)["xgrammar"].load(compiled.source())
    assert loaded.native.serialize_json() == compiled.native.serialize_json()


ODD = {
    "key": (
        "json",
        '{"type": "object", "properties": {"gr\u00f6\u00dfe": {}}, "required": ["gr\u00f6\u00dfe"]}',
    ),
    "escaped": ("json", '{"enum": ["gr\\u00f6\\u00dfe"]}'),
    "choice": ("choice", '["gr\u00f6\u00dfe"]'),
    "regex": ("regex", "gr\u00f6\u00dfe"),
    "class": ("regex", r"[\s]0[\u00df]e"),
    "delete": ("regex", "\x7fe"),
    "grammar": ("grammar", 'root ::= "gr\u00f6\u00dfe"'),
}
TEXTS = {
    "key": '{"gr\u00f6\u00dfe": null}',
    "escaped": '"gr\u00f6\u00dfe"',
    "class": " 0\u00dfe",
    "delete": "\x7fe",
}


@pytest.mark.parametrize("name", ODD)
def test_characters_that_xgrammar_escapes_are_not_lost_on_the_way(words: Vocabulary, name: str) -> None:
    """xgrammar 0.2.8: `compile_grammar` of a Grammar reads back "\u00df" and "e" as one character."""
    import xgrammar

    kind, spec = ODD[name]
    backend = Backends(words)["xgrammar"]
    compiled = backend.compile(kind, spec)
    info = words.native("xgrammar")
    sent = [xgrammar.CompiledGrammar.deserialize_json(compiled.native.serialize_json(), info)]
    sent.append(Backends(words)["xgrammar"].load(compiled.source()).native)
    for grammar in sent:
        assert xgrammar.GrammarMatcher(grammar).accept_string(TEXTS.get(name, "gr\u00f6\u00dfe"))


def test_llguidances_text_is_vllms(words: Vocabulary, upstream: Any) -> None:
    ours = Backends(words)["guidance"].compile("json", grammars.PERSON)

    upstream["guidance"].compile_grammar(*_upstream_request("guidance", "json", grammars.PERSON))

    assert ours.source() == upstream["guidance"].serialized_grammar


CHOICES = ["plain", 'a "quote"', "back\\slash", "new\nline\r\ttab", "\x00\x1f\x7f", "äöü 漢字 🙂", ""]


def test_a_choice_is_rewritten_as_vllm_does() -> None:
    from vllm.v1.structured_output.utils import choice_as_grammar

    assert choice_as_ebnf(CHOICES) == choice_as_grammar(CHOICES)


@pytest.mark.parametrize(
    "text", ['root ::= "a"', 'start: "a"', "// x ::= y\nstart: /a/", "# only a comment", 'a: "b" ::= c']
)
def test_lark_is_told_as_vllm_does(text: str) -> None:
    from vllm.v1.structured_output.utils import grammar_is_likely_lark

    assert is_lark(text) == grammar_is_likely_lark(text)


def test_the_template_without_torch_reads_the_same_tokenizer(words: Vocabulary, tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    from guided_contract import names
    from support.engine import write_config

    code = (
        "import sys; from guided_contract import config; "
        "from guided_sidecar.grammar.compile import imports, vocabulary; "
        "imports.without_torch(); read = vocabulary.load(config.load()); "
        "assert not sys.modules.get('torch'); print(*read.fingerprints.values(), sep=chr(10))"
    )
    environment = {**os.environ, names.ENV_CONFIG: str(write_config(pod_config(tmp_path)))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.splitlines() == [*words.fingerprints.values()]


def _upstream_request(backend: str, kind: Kind, spec: str) -> tuple[Any, str]:
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions as Options
    from vllm.v1.structured_output.utils import choice_as_grammar

    if kind == "choice" and backend == "xgrammar":  # as its validator rewrites the request
        return Options.GRAMMAR, choice_as_grammar(json.loads(spec))
    return Options[kind.upper()], spec


def _texts(words: Vocabulary, vllms: Any, vocab_size: int) -> Any:
    """Return the row of tokens that a reader of the answer sees, or that end it; no other is text for us.

    Nor is one with a control character that ends no line: upstream's xgrammar has them in bounded strings.
    """
    hidden = {*vllms.tokenizer.all_special_ids} - {EOS}
    controls = re.compile(rb"[\x00-\x09\x0b\x0c\x0e-\x1f]")
    shown = [
        token == EOS or (token not in hidden and text != b"" and not controls.search(text))
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

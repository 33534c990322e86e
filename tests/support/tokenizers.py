"""A small tokenizer whose tokens are awkward for JSON strings: they run across quotes and escapes."""

import copy
import functools
import json
import random
from typing import Any

VOCAB = 4096
BOS, EOS = 0, 1
_TEXTS = ("", "a", "ab", "é", "漢字", "🙂", "🙂🙂", "𝄞", '"', "\\", "\n", "/", "\x1f", "word word", "ß" * 3)


SPECIAL = ("<|im_start|>", "<|im_end|>", "[TOOL]", "<|sép|>", *(f"<|reserved_{n}|>" for n in range(99)))
ADDED = ("<tool_call>", "</tool_call>")  # added, but part of the answer, as in Qwen's tokenizers


@functools.cache
def chat() -> Any:
    """Return the awkward tokenizer with the special and added tokens of chat models."""
    from tokenizers import AddedToken

    tokenizer = copy.deepcopy(awkward())
    tokenizer.add_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in ADDED])
    return tokenizer


@functools.cache
def awkward() -> Any:
    """Return a byte-level BPE tokenizer that merges across word, quote and escape boundaries."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|bos|>", "<|eos|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_documents(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|eos|>")


def vocabulary(tokenizer: Any = None) -> Any:
    """Return the awkward tokenizer, or another, as grammar workers hold theirs."""
    from guided_grammar.registry import Tokenizer
    from guided_sidecar.grammar.compile.vocabulary import Vocabulary

    tokenizer = tokenizer or awkward()
    forms = Tokenizer(tokenizer, len(tokenizer))
    return Vocabulary(len(tokenizer), forms, {}, forms.native("xgrammar").decoded_vocab)


def _documents() -> list[str]:
    rng = random.Random(0)
    found = []
    for number in range(3000):
        values = ["".join(rng.choices(_TEXTS, k=rng.randrange(4))) for _ in range(5)]
        document = {"a": values[0], "b": values[1:], "c": {"d": None, "e": values[2]}}
        text = json.dumps(
            document,
            ensure_ascii=bool(number % 2),
            separators=((",", ":"), None)[number % 3 > 0],
            indent=(None, None, None, 5, 16)[number % 5],
        )
        found += [text] * (1 + number % 3)
    return found

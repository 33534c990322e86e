"""The tokenizer as vLLM 0.32 gives it to its grammar backends, so that masks have the same width and bits."""

import dataclasses
import hashlib
import json
from typing import Any

from guided_contract.backends import Backend
from guided_contract.config import PodConfig
from guided_grammar import registry


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the libraries need of a tokenizer.

    `vocab_size` is the model's (padding included), the width of the logits; `tokens` are their bytes.
    """

    vocab_size: int
    forms: registry.Vocabulary
    fingerprint: str
    tokens: list[bytes]

    def native(self, name: Backend) -> Any:
        """Return a library's own form of it; see guided_grammar.registry.Vocabulary."""
        return self.forms.native(name)


def load(config: PodConfig) -> Vocabulary:
    """Read tokenizer and model configuration from where vLLM reads them."""
    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415 - only the template loads it

    remote = config.trust_remote_code
    model = AutoConfig.from_pretrained(config.model, trust_remote_code=remote).get_text_config()
    vocab_size = int(model.vocab_size)
    tokenizer = AutoTokenizer.from_pretrained(config.tokenizer, trust_remote_code=remote)
    forms = registry.Tokenizer(tokenizer, vocab_size)
    info = forms.native("xgrammar")
    return Vocabulary(vocab_size, forms, _fingerprint(tokenizer, info, vocab_size), info.decoded_vocab)


def _fingerprint(tokenizer: Any, info: Any, vocab_size: int) -> str:
    """Hash what decides a mask: every token's text and number, and how the libraries read them."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = sorted(int(number) for number in tokenizer.all_special_ids)
    facts = [info.dump_metadata(), vocab_size, tokenizer.eos_token_id, special, vocabulary]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

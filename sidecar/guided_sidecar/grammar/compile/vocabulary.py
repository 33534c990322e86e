"""The tokenizer as vLLM 0.32 gives it to its grammar backends, so that masks have the same width and bits."""

import dataclasses
from typing import Any

from guided_contract.backends import Backend
from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar import registry


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the libraries need of a tokenizer.

    `vocab_size` is the model's (padding included), the width of the logits; `tokens` are their bytes.
    """

    vocab_size: int
    forms: registry.Vocabulary
    fingerprints: dict[Backend, str]
    tokens: list[bytes]

    def native(self, name: Backend) -> Any:
        """Return a library's own form of it; see guided_grammar.registry.Vocabulary."""
        return self.forms.native(name)


def refuse_other(fingerprints: dict[Backend, str], words: Vocabulary) -> None:
    """Refuse a job whose key was made of another tokenizer, which a template before this one had."""
    if fingerprints not in ({}, words.fingerprints):
        message = "the tokenizer has changed on the Hugging Face hub since the pod started"
        raise GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message)


def load(config: PodConfig) -> Vocabulary:
    """Read tokenizer and model configuration from where vLLM reads them."""
    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415 - only the template loads it

    # Of code that comes with the model, too, this revision is loaded.
    source = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    model = AutoConfig.from_pretrained(config.model, **source).get_text_config()
    vocab_size = int(model.vocab_size)
    # As vLLM says: else a tekken.json beside tokenizer.json would be taken in its place.
    tokenizer = AutoTokenizer.from_pretrained(config.tokenizer, mistral_format=False, **source)
    forms = registry.Tokenizer(tokenizer, vocab_size)
    info = forms.native("xgrammar")
    return Vocabulary(vocab_size, forms, registry.fingerprints(forms), info.decoded_vocab)

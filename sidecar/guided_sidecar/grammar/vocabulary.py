"""The tokenizer as vLLM 0.32 gives it to its grammar backends, so that masks have the same width and bits.

xgrammar: `TokenizerInfo.from_huggingface(tokenizer, vocab_size=model's)`; llguidance:
`from_tokenizer(tokenizer, max(model's vocab_size, len(tokenizer)))` (v1/structured_output/backend_*.py).
"""

import dataclasses
from typing import Any

from guided_contract import fingerprint
from guided_contract.config import PodConfig
from guided_contract.wire import Backend


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """What both libraries need of a tokenizer.

    `vocab_size` is the model's (padding included), the width of the logits; `tokens` are their bytes.
    """

    vocab_size: int
    xgrammar_info: Any  # xgrammar.TokenizerInfo
    guidance_tokenizer: Any  # llguidance.LLTokenizer; None: not a fast tokenizer, so no llguidance
    fingerprints: dict[Backend, str]
    tokens: list[bytes]

    @property
    def stop_tokens(self) -> frozenset[int]:
        """What ends a text, for either library."""
        guidance = [] if self.guidance_tokenizer is None else [self.guidance_tokenizer.eos_token]
        return frozenset([*self.xgrammar_info.stop_token_ids, *guidance])


def load(config: PodConfig) -> Vocabulary:
    """Read tokenizer and model configuration from where vLLM reads them."""
    import llguidance.hf  # noqa: PLC0415 - after native.without_torch()
    import xgrammar  # noqa: PLC0415 - only the template loads it
    from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 - only the template loads it

    # Of code that comes with the model, too, this revision is loaded.
    source = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    model = AutoConfig.from_pretrained(config.model, **source).get_text_config()
    vocab_size = int(model.vocab_size)
    # As vLLM says: else a tekken.json beside tokenizer.json would be taken in its place.
    tokenizer = AutoTokenizer.from_pretrained(config.tokenizer, mistral_format=False, **source)
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
    guidance = None
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        guidance = llguidance.hf.from_tokenizer(tokenizer, max(vocab_size, len(tokenizer)))
    fingerprints: dict[Backend, str] = {"xgrammar": fingerprint.of_xgrammar(info)}
    if guidance is not None:
        fingerprints["guidance"] = fingerprint.of_llguidance(guidance)
    return Vocabulary(vocab_size, info, guidance, fingerprints, info.decoded_vocab)

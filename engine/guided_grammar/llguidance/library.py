"""The library that vLLM calls guidance: llguidance."""

from typing import Any, Final

from guided_contract import fingerprint
from guided_contract.wire import Kind
from guided_grammar.backend import Backend, BackendError, Library, Threads, Unsupported


class GuidanceLibrary:
    """llguidance, as guided_grammar.backend.Library has it."""

    compares_spellings = True
    # Regexes by derivatives: none is ambiguous, and none takes seconds to compile.
    first_for = frozenset[Kind](["choice", "json", "json_object", "regex", "structural_tag"])
    # Such a bound it compiles to masks that cost less than counting (docs/how-a-grammar-is-served.md).
    counts_minimum_alone = False

    def read(self, tokenizer: Any, vocab_size: int) -> Any:
        """Return an llguidance.LLTokenizer, as upstream makes it; see Library."""
        import llguidance.hf  # noqa: PLC0415 - of workers and ranks alone
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - likewise

        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise BackendError("llguidance supports only fast tokenizers")
        return llguidance.hf.from_tokenizer(tokenizer, max(vocab_size, len(tokenizer)))

    def fingerprint(self, native: Any) -> str:
        """Return what tells two llguidance.LLTokenizer apart, in 0.5 s for 131,072 tokens; see Library.

        Where a grammar forces a text, llguidance allows the tokens that the tokenizer makes of it.
        """
        numbers = range(native.vocab_size)
        special = [number for number in numbers if native.is_special_token(number)]
        tokens = [native.decode_bytes([number]) for number in numbers]
        texts = (b"\0".join(tokens[first : first + 256]) for first in range(0, len(tokens), 256))
        forced = [native.tokenize_bytes(text) for text in texts]
        return fingerprint.of(native.vocab_size, f"{native.eos_token} {special} {forced}", tokens)

    def open(self, native: Any, threads: Threads) -> Backend:
        """Return llguidance with a tokenizer; see Library."""
        from guided_grammar.llguidance.backend import GuidanceBackend  # noqa: PLC0415 - imports llguidance

        return GuidanceBackend(native, threads)

    def lacks(self, kind: Kind, value: Any) -> Unsupported | None:
        """Return the first thing that llguidance does not enforce; see Library."""
        from guided_grammar.llguidance import unenforced  # noqa: PLC0415 - imports jsonschema; of workers alone

        return unenforced.lacks(kind, value)


LIBRARY: Final[Library] = GuidanceLibrary()

"""The library that vLLM asks first: xgrammar."""

from typing import Any, Final

from guided_contract import fingerprint
from guided_contract.wire import Kind
from guided_grammar.backend import Backend, Library, Threads, Unsupported


class XGrammarLibrary:
    """xgrammar, as guided_grammar.backend.Library has it."""

    compares_spellings = False
    # vLLM's EBNF.
    first_for = frozenset[Kind](["grammar"])
    counts_minimum_alone = True

    def read(self, tokenizer: Any, vocab_size: int) -> Any:
        """Return an xgrammar.TokenizerInfo in which no special token is text; see Library."""
        import xgrammar  # noqa: PLC0415 - of workers and ranks alone

        from guided_grammar.xgrammar import special  # noqa: PLC0415 - likewise

        read = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        return special.marked(read, tokenizer)

    def fingerprint(self, native: Any) -> str:
        """Return what tells two xgrammar.TokenizerInfo apart, in 0.1 s for 131,072 tokens; see Library."""
        # Not how it reads the vocabulary (vocab_type, add_prefix_space): a slow and a fast class of the same
        # tokenizer differ in it, and the bytes that it has read do not.
        about = f"{native.stop_token_ids} {native.special_token_ids}"
        return fingerprint.of(native.vocab_size, about, native.decoded_vocab)

    def open(self, native: Any, threads: Threads) -> Backend:
        """Return xgrammar with a tokenizer; see Library."""
        from guided_grammar.xgrammar.backend import XGrammarBackend  # noqa: PLC0415 - imports xgrammar

        return XGrammarBackend(native, threads)

    def lacks(self, kind: Kind, value: Any) -> Unsupported | None:
        """Return the first thing that xgrammar does not enforce; see Library."""
        from guided_grammar.xgrammar import unenforced  # noqa: PLC0415 - imports jsonschema; of workers alone

        return unenforced.lacks(kind, value)


LIBRARY: Final[Library] = XGrammarLibrary()

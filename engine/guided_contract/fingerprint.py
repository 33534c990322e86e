"""Fingerprints of a tokenizer, by what each grammar library makes of it: equal ones, equal masks.

Where a tokenizer comes from, and how it is read (fast or not, by whose classes, with which merges), is not in
them: a mask depends on each token's bytes, on which tokens are special and which end a text, and on how many
the model has. Two processes that have a library's form of it in common compare that one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from guided_contract.wire import Backend


class TokenizerInfo(Protocol):
    """What is read of xgrammar's TokenizerInfo."""

    vocab_size: int
    decoded_vocab: list[bytes]
    special_token_ids: list[int]
    stop_token_ids: list[int]


class LLTokenizer(Protocol):
    """What is read of llguidance's LLTokenizer."""

    vocab_size: int
    eos_token: int

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """Return the bytes of tokens."""

    def is_special_token(self, token: int) -> bool:
        """Return whether a token stands for no text."""


def of_xgrammar(info: TokenizerInfo) -> str:
    """Return the fingerprint of xgrammar's form; about 0.1 s for 131,072 tokens."""
    # Not how it reads the vocabulary (vocab_type, add_prefix_space): a slow and a fast class of the same
    # tokenizer differ in it, and the bytes that it has read do not.
    about = f"{info.stop_token_ids} {info.special_token_ids}"
    return _fingerprint(info.vocab_size, about, info.decoded_vocab)


def of_llguidance(tokenizer: LLTokenizer) -> str:
    """Return the fingerprint of llguidance's form; about 0.1 s for 131,072 tokens."""
    numbers = range(tokenizer.vocab_size)
    special = [number for number in numbers if tokenizer.is_special_token(number)]
    tokens = (tokenizer.decode_bytes([number]) for number in numbers)
    return _fingerprint(tokenizer.vocab_size, f"{tokenizer.eos_token} {special}", tokens)


def differing(ours: Mapping[Backend, str], theirs: Mapping[Backend, str]) -> list[Backend]:
    """Return the libraries for which both have a fingerprint, and not the same one."""
    return [backend for backend in ours if theirs.get(backend, ours[backend]) != ours[backend]]


def _fingerprint(size: int, about: str, tokens: Iterable[bytes]) -> str:
    """Return the number of tokens, for whoever reads it, and a hash of everything."""
    digest = hashlib.sha256(about.encode())
    for token in tokens:
        digest.update(len(token).to_bytes(4, "little") + token)
    return f"{size} tokens, {digest.hexdigest()}"

"""Fingerprints of a tokenizer, by what each grammar library makes of it: equal ones, equal masks.

A mask depends on each token's bytes, on which tokens are special and which end a text, on how many the model
has, and with a library that tokenizes forced text on how the tokenizer does; not on where it comes from.
"""

import hashlib
from collections.abc import Iterable, Mapping

from guided_contract.wire import Backend


def of(size: int, about: str, tokens: Iterable[bytes]) -> str:
    """Return the number of tokens, for whoever reads it, and a hash of everything.

    Parameters
    ----------
    size
        Tokens that a mask has.
    about
        Which of them are special, and which end a text.
    tokens
        Each token's bytes, in their order.
    """
    digest = hashlib.sha256(about.encode())
    for token in tokens:
        digest.update(len(token).to_bytes(4, "little") + token)
    return f"{size} tokens, {digest.hexdigest()}"


def differing(ours: Mapping[Backend, str], theirs: Mapping[Backend, str]) -> list[Backend]:
    """Return the libraries whose fingerprints differ; one that only one side has is not compared."""
    return [backend for backend in ours if theirs.get(backend, ours[backend]) != ours[backend]]

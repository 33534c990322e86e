"""A grammar's key: equal keys, equal masks."""

import hashlib

import msgspec

from guided_contract.config import PodConfig
from guided_sidecar.grammar.jobs import Ready


def grammar_key(kind: str, spec: str, pod: PodConfig, facts: Ready) -> str:
    """Return the hash of all that a compiled grammar depends on, as 64 hex digits."""
    guided = pod.guided_decoding
    parts = [kind, spec, guided.backend, guided.whitespace, facts.tokenizer, facts.vocab_size, facts.versions]
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()

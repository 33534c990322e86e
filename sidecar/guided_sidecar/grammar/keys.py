"""A grammar's key: equal keys, equal masks."""

import functools
import hashlib
from pathlib import Path

import msgspec

from guided_contract import counting
from guided_contract.config import PodConfig
from guided_contract.wire import BACKENDS, Backend
from guided_sidecar.grammar.jobs import Ready


def backends(asked: Backend | None, pod: PodConfig) -> list[Backend]:
    """Return the backends to choose from: the request's own, else the pod's, else (Auto) all."""
    chosen = asked or BACKENDS.get(pod.guided_decoding.backend)
    return list(BACKENDS.values()) if chosen is None else [chosen]


def grammar_key(kind: str, spec: str, candidates: list[Backend], pod: PodConfig, facts: Ready) -> str:
    """Return the hash of all that a compiled grammar depends on, as 64 hex digits."""
    whitespace = pod.guided_decoding.whitespace
    code = code_fingerprint(Path(__file__).parent, Path(counting.__file__))
    parts = [kind, spec, candidates, whitespace, facts.tokenizer, facts.vocab_size, facts.versions, code]
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


@functools.cache
def code_fingerprint(folder: Path, *modules: Path) -> str:
    """Return a hash of our own code: what another release compiled or proved otherwise is compiled again."""
    sources = [*sorted(folder.glob("*.py")), *modules]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()

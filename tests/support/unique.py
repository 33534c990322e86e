"""A tokenizer's words, and what ranks make of schemas whose items differ."""

import json
import random
from typing import Any, Final, Self

import numpy as np
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_contract.wire import Backend, Kind, Load
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.worker_messages import Done, Job
from support import tokenizers

KEY: Final = "0" * 64
EOS: Final = 1  # of both tokenizers


def obj(**properties: Any) -> dict[str, Any]:
    """Return a schema of objects that have some properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class Words:
    """One tokenizer, and what ranks have of a schema."""

    def __init__(self, known: vocabulary.Vocabulary) -> None:
        self.tokens: list[bytes] = known.tokens
        self._backends = Backends(known)
        self._compiler = Compiler(self._backends, known)

    def compiled(self, kind: Kind, grammar: Any, backend: Backend) -> Done:
        """Compile a grammar for one library; not proven, which would measure how busy the machine is."""
        job = Job(
            key=KEY,
            kind=kind,
            spec=json.dumps(grammar),
            backends=[backend],
            is_proven=False,
            timeout_s=60,
            memory_bytes=1 << 40,
        )
        return self._compiler.run(job)

    def matcher(self, grammar: Any, backend: Backend, kind: Kind = "json") -> Matcher:
        """Return a rank's matcher of a schema, or of a grammar of another kind."""
        done = self.compiled(kind, grammar, backend)
        ranks = LoadedGrammars(self._backends)
        load = Load(
            key=KEY,
            backend=backend,
            spec=done.spec,
            positions=done.positions,
        )
        assert not ranks.load(load).error
        return ranks.matcher(KEY, [EOS])

    @classmethod
    def of(cls, tokenizer: str) -> Self:
        """Return those of the tiny model, or of the awkward tokenizer."""
        if tokenizer == "awkward":
            return cls(tokenizers.vocabulary())
        model = str(tinymodel.models() / "tiny")
        pod = PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
        return cls(vocabulary.load(pod))


def mask(matcher: Matcher, tokens: list[bytes]) -> Any:
    """Return which tokens a matcher allows."""
    row = np.full((1, -(-len(tokens) // 32)), -1, dtype=np.int32)
    matcher.fill(row, 0)
    return np.unpackbits(row[0].view(np.uint8), bitorder="little")[: len(tokens)].astype(bool)


def likes(tokens: list[bytes], chance: random.Random) -> Any:
    """Return how likely a walk takes each token: few letters and digits, so that items come again."""
    found = []
    rare = chance.choice((1e-5, 1e-3))
    for text in tokens:
        is_odd = text[:1] == b"\\" or b'"' in text[1:]
        is_short = len(text) == 1 and text in b'ab01"'
        found.append(
            9.0 if text in {b'"', b","} else 3.0 if is_short else chance.choice((rare, is_odd / 3 or rare))
        )
    return np.array(found)

"""A tokenizer's words, and what ranks make of schemas whose items differ."""

import random
from typing import Any, Final

import numpy as np

from guided_contract.wire import Backend, Kind
from guided_grammar.matching import Matcher
from guided_sidecar.grammar.worker_messages import Done
from support import worker_and_rank

EOS: Final = worker_and_rank.EOS


def obj(**properties: Any) -> dict[str, Any]:
    """Return a schema of objects that have some properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class Words(worker_and_rank.WorkerAndRank):
    """One tokenizer, and what ranks have of a schema; not proven, which would measure the machine."""

    def compiled(self, kind: Kind, grammar: Any, backend: Backend) -> Done:  # type: ignore[override]
        """Compile a grammar for one library."""
        return super().compiled(kind, grammar, backend, is_proven=False)

    def matcher(self, grammar: Any, backend: Backend, kind: Kind = "json") -> Matcher:  # type: ignore[override]
        """Return a rank's matcher of a schema, or of a grammar of another kind."""
        return super().matchers(kind, grammar, backend, is_proven=False)()


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

"""Serves a choice by a third backend, through a real sidecar and a real rank's code; writes what came of it.

`python -m support.third_backend FOLDER`, by a Python in which that backend is registered at start-up.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from guided_contract.config import GuidedDecodingConfig
from guided_contract.wire import Prepared
from guided_engine import versions
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.registry import Backends
from guided_operator.api import crd
from guided_sidecar.grammar.compile import vocabulary
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar

TEXTS = ["no", "yes", "yesterday"]


async def serve(folder: Path) -> dict[str, Any]:
    pod = pod_config(folder, guided_decoding=GuidedDecodingConfig(backend="Fake"))
    words = vocabulary.load(pod)
    backends = Backends(words)
    loaded_grammars = LoadedGrammars(backends)
    sidecar = Sidecar.start(pod)
    try:
        async with (
            Rank.connected(pod, answer=loaded_grammars.load) as rank,
            Api.connected(pod) as api,
            asyncio.timeout(100),
        ):
            while not isinstance(choice := await api.prepare("choice", json.dumps(TEXTS)), Prepared):
                pass  # the template warms up
            schema = await api.prepare("json", '{"type": "boolean"}')
            kept = rank.loads[0]
    finally:
        sidecar.stop()
    return {
        "choice": choice.backend,
        "json": getattr(schema, "backend", schema),
        "source": json.loads(kept.spec or ""),
        "masks": _masks(loaded_grammars, backends, choice.key, words) == _expected(words),
        "versions": sorted(versions.versions()),
        "crd": "'Fake'" in str(crd.root_schema()),
    }


def _masks(
    loaded_grammars: LoadedGrammars, backends: Backends, key: str, words: vocabulary.Vocabulary
) -> list[list[str]]:
    """Return the texts that each row of a step allows: the next token's, and those after three drafts."""
    buffer = BitmaskBuffer(8, words.vocab_size, backends)
    drafts = [words.tokens.index(text) for text in (b"y", b"e", b"n")]
    walk = GuidedRows(loaded_grammars.matcher(key, None), 0, 4, drafts)
    rows, _ = buffer.fill([walk], walk.end)
    assert walk.valid == 2  # the third is not allowed, and what would follow it is not masked
    assert (rows[3] == -1).all()
    assert walk.filled == 3
    bits = [np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")) for row in rows[:3]]
    return [[words.tokens[token].decode() for token in allowed] for allowed in bits]


def _expected(words: vocabulary.Vocabulary) -> list[list[str]]:
    """Return the same, worked out from the texts alone."""
    known = [text.decode(errors="replace") for text in words.tokens]
    rests = [
        [text.removeprefix(begun) for text in TEXTS if text.startswith(begun)] for begun in ("", "y", "ye")
    ]
    return [[text for text in known if text and any(rest.startswith(text) for rest in row)] for row in rests]


if __name__ == "__main__":
    pod_folder = Path(sys.argv[1])
    pod_folder.mkdir()
    found = asyncio.run(serve(pod_folder))
    (pod_folder / "found.json").write_text(json.dumps(found))

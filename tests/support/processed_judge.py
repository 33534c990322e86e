"""Judges support.processed_engine: each token is what plain numpy makes in float32 of the logits."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_engine.processors.dry import DryParams
from support import matrix_process
from support.matrix_process import Job, Runner
from support.processed_engine import PROCESSORS, prompts
from support.token_walks import Judge, Logits, dry


def no_repeat(prompt: list[int], output: list[int], logits: Logits) -> Logits:
    text = [*prompt, *output]
    logits[[after for one, after in pairwise(text) if one == text[-1]]] = -np.inf
    return logits


def check(folder: Path, runner: Runner, arguments: dict[str, Any], *, on_gpu: bool = False) -> None:
    """Run an engine of a bfloat16 model, and assert that each token is the references' choice."""
    model = str(tinymodel.models() / "tiny")
    pod = PodConfig(
        name="bfloat16",
        model=model,
        tokenizer=model,
        served_name="tiny",
        run_dir=str(folder),
        logits_processors=PROCESSORS,
    )
    job = Job(
        answer=str(folder / "answer.json"),
        model=model,
        arguments={"dtype": "bfloat16", "max_logprobs": -1, **arguments},
        pod=pod,
        on_gpu=on_gpu,
    )
    answers = matrix_process.start(job, runner, folder, "support.processed_engine")
    params = msgspec.convert(PROCESSORS[0].params, DryParams)
    judges: dict[str, Judge] = {
        "dry": dry(params, {tinymodel.EOS}),
        "no-repeat": no_repeat,
    }
    for name, judge in judges.items():
        compared = [
            _parted(prompt, plain, tokens, judge)
            for prompt, plain, (tokens, _) in zip(prompts(), answers["plain"], answers[name], strict=True)
        ]
        assert sum(compared) >= len(compared) / 3, name


def _parted(prompt: list[int], plain: Any, tokens: list[int], judge: Judge) -> bool:
    """Compare tokens until they are others than without the processor; return whether they ever are."""
    without, rows = plain
    for place, (token, other) in enumerate(zip(tokens, without, strict=True)):
        wanted = judge(prompt, tokens[:place], np.array(rows[place], np.float32))
        # Of some that are equal any is right: a bfloat16 has eight bits of them.
        assert wanted[token] >= wanted.max() - 1e-4, (place, token, int(wanted.argmax()))
        if token != other:
            return True
    return False

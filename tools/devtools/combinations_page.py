"""docs/compatibility.md: what ran, and the table of what does not go together, as people read them."""

from pathlib import Path
from typing import Final, NamedTuple

from guided_contract.combinations.table import ROWS
from guided_contract.compatibility import SUPPORTED_VLLM

COMBINATIONS_FILE: Final = Path("docs", "compatibility.md")

_HEAD: Final = """\
# What goes with what

Made by `python -m devtools.api_reference`; do not edit. The parts of a first column hold together; V1 and
V2 are vLLM's model runners. V2 is what vLLM takes on CUDA, and on a CPU with a Triton, where nothing below
says otherwise. The variable `VLLM_USE_V2_MODEL_RUNNER` in `engine.env` chooses: `"1"` is V2, `"0"` V1.

## Supported: what ran
By vLLM and by us, on a CPU, Model Runner V2 by Triton's interpreter. On an H200 `tests/gpu` has compared
one rank, V2, asynchronous, a tiny model in float32 without torch.compile, without drafts, and with
DraftModel, NGram, Eagle3, and MTP of one draft token; nothing has run on a GPU that is not NVIDIA's.

| what | so | run by |
| --- | --- | --- |
"""
_REFUSED: Final = """
A reasoning parser of a file ran, too (`tests/engine/test_matrix.py V2-tp2-draft-async`): the plugin imports
it on the ranks, where vLLM does not and a draft model then fails; the resource cannot name one.

What stands in neither table vLLM's configuration takes, or vLLM refuses at its start (`RefusedAtStart`), and
no engine of ours has generated text with it: DSpark and DFlash, `verification: Adaptive`, multimodal models,
`Probabilistic` and `Block` with another method than Eagle3, LoRA with a method but DraftModel, more than one
engine that speculates, batches that overlap. vLLM alone refuses dual batch overlap on V2 of multimodal models
and of those with attention and state space layers, with context parallelism, and with PIECEWISE CUDA graphs;
on ROCm it schedules `--enable-dbo` with `deepep_high_throughput` synchronously alone.

## Refused, or falls back
A row counts if all of its first column holds; one that refuses is enough. The operator refuses by
`Compatible=False`, the plugin when a rank starts, and vLLM at its start; the last two are the reason
`RefusedAtStart`, with the words.

What falls back runs, but not as asked for: `guidedmodel validate` and the condition `Compatible` say so, of
both model runners where a resource alone does not decide.

A test has vLLM {version} make its own configuration for each row of both tables, on a CPU and as on an
NVIDIA GPU, and compares verdict, scheduling, model runner and the number of draft tokens by batch size, as
`disableAbove` and `numTokens: Auto` have it. Two warnings of vLLM's are in no row, and change nothing: with
speculation and fewer than 8192 tokens a step (`--max-num-batched-tokens`; its default on a CPU, on an A100,
and on GPUs below 70 GB, is fewer), that these may be few; with MTP and `numTokens` above 1, that one layer
then runs several times.

| what | field | what happens | why, and what to set instead |
| --- | --- | --- | --- |
"""


class Ran(NamedTuple):
    """What an engine of ours has generated text with."""

    where: str  # in the words of guided_contract.combinations
    so: str
    test: str


_MATRIX: Final = "tests/engine/test_matrix.py"
_FIELDS: Final = "tests/e2e/test_run_fields.py"
_HEADS: Final = "the tests' own head"
_LAYERS: Final = "the model's own layers; MiMo's, and the tests' own"
RAN: Final = (
    Ran("no speculation; V2", "scheduled asynchronously", f"{_MATRIX} V2-tp1-none-async"),
    Ran("no speculation; V1; one stage", "scheduled asynchronously", f"{_MATRIX} V1-tp1-none-async"),
    Ran("NGram; V2; on a GPU", "vLLM's ngram_gpu", f"{_MATRIX} V2-tp1-ngram_gpu-async"),
    Ran("NGram; on a CPU; scheduling Sync", "vLLM's ngram", f"{_MATRIX} V1-tp1-ngram-sync"),
    Ran("DraftModel; V1; on a CPU", "synchronously, unless asked", f"{_MATRIX} V1-tp1-draft-sync"),
    Ran("DraftModel; V2", "scheduled asynchronously", f"{_MATRIX} V2-tp1-draft-async"),
    Ran("DraftModel; V1; one stage", "scheduled asynchronously", f"{_MATRIX} V1-tp2-draft-async"),
    Ran("Eagle3; V2", f"of Llama's, and {_HEADS}, none that is published", f"{_MATRIX} V2-tp1-eagle3-async"),
    Ran("Eagle3; V1; one stage", _HEADS, f"{_MATRIX} V1-tp1-eagle3-async"),
    Ran("MTP; V2", _LAYERS, f"{_MATRIX} V2-tp1-mtp-async"),
    Ran("MTP; V1; scheduling Auto or scheduling Async; one stage", _LAYERS, f"{_MATRIX} V1-tp1-mtp-async"),
    Ran("MTP; V1; scheduling Sync", _LAYERS, f"{_MATRIX} V1-tp1-mtp-sync"),
    Ran(
        "probabilistic drafts; Eagle3; V2",
        "the head's distribution is kept for the verification",
        f"{_MATRIX} V2-tp1-eagle3-probabilistic-async",
    ),
    Ran(
        "probabilistic drafts; Eagle3; V1",
        "not by a request's seed: the same seed may give other text each time",
        f"{_MATRIX} V1-tp1-eagle3-probabilistic-async",
    ),
    Ran(
        "verification Block; V2; Eagle3",
        "a sequence's draft tokens are verified together",
        f"{_MATRIX} V2-tp1-eagle3-block-async",
    ),
    Ran(
        "tensor parallelism; no speculation or DraftModel",
        "each rank masks and verifies, and all agree",
        f"{_MATRIX} V2-tp2-draft-async",
    ),
    Ran(
        "tensor parallelism; Eagle3; V2",
        "each rank has the head, and all propose alike",
        f"{_MATRIX} V2-tp2-eagle3-async",
    ),
    Ran(
        "tensor parallelism; NGram; V2",
        "each rank finds the same; compared in requests with logits processors alone",
        f"{_MATRIX} V2-tp2-ngram_gpu-async",
    ),
    Ran(
        "pipeline stages; no speculation or NGram; V2; on a GPU",
        "the last stage samples, masks and proposes",
        f"{_MATRIX} V2-tp1pp2-ngram_gpu-async",
    ),
    Ran(
        "pipeline stages; Eagle3; V2",
        "if the model passes its hidden states on (Llama's do), else vLLM refuses it (`RefusedAtStart`)",
        f"{_MATRIX} V2-tp1pp2-eagle3-async",
    ),
    Ran(
        "pipeline stages; MTP; V2",
        f"in the last stage; {_LAYERS}",
        f"{_MATRIX} V2-tp1pp2-mtp-async",
    ),
    Ran("pipeline stages; no speculation; V1", "synchronously", f"{_MATRIX} V1-tp1pp2-none-sync"),
    Ran(
        "several engines; no speculation",
        "each has its own scheduler and ranks",
        "tests/engine/test_parallel.py",
    ),
    Ran(
        "placement Scheduler",
        "vLLM's own path, which the plugin leaves alone",
        "tests/e2e/test_scheduler_placement.py",
    ),
    Ran(
        "logits processors; V2",
        "edits come after the mask, on each draft's row",
        f"{_MATRIX} V2-tp2-draft-async",
    ),
    Ran(
        "logits processors; V1",
        "edits come after the mask, on each draft's row; before vLLM's bias and penalties",
        f"{_MATRIX} V1-tp1-draft-sync",
    ),
    Ran("LoRA; no speculation; V2", "with guided decoding", f"{_MATRIX} V2-tp1-none-async-lora"),
    Ran("LoRA; DraftModel; V1", "the draft model proposes for adapters, too", _FIELDS),
    Ran(
        "`disableAbove`; V2; NGram or DraftModel or Eagle3 or MTP",
        "drafts above the batch size are dropped",
        f"{_MATRIX} V2-tp1-draft-async",
    ),
    Ran(
        "`disableAbove`; V1; on a CPU; NGram or DraftModel or Eagle3 or MTP",
        "not made above it; vLLM warns of graphs, which a CPU has none of",
        _FIELDS,
    ),
    Ran(
        "`numTokens: Auto`; V2; DraftModel or Eagle3",
        "0, 1 or maxTokens drafts, by what steps take and drafts bring; each has graphs of its own",
        "tests/engine/test_drafts_by_load.py",
    ),
    Ran(
        "batch-sharded sampling; tensor parallelism; V2",
        "each rank masks the rows that it samples",
        f"{_MATRIX} V2-tp2-draft-async-sharded",
    ),
)


def combinations_text() -> str:
    """Return the page."""
    ran = (f"| {one.where} | {one.so} | `{one.test}` |\n" for one in RAN)
    rows = (f"| {row.where} | `{row.field}` | {row.happens} | {row.message} |\n" for row in ROWS)
    return "".join([_HEAD, *ran, _REFUSED.format(version=SUPPORTED_VLLM[-1]), *rows])

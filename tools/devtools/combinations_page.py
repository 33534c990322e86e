"""docs/compatibility.md: what ran, and the table of what does not go together, as people read them."""

from pathlib import Path
from typing import Final, NamedTuple

from guided_contract.combinations.row import Row
from guided_contract.combinations.table import ROWS
from guided_contract.compatibility import SUPPORTED_VLLM

COMBINATIONS_FILE: Final = Path("docs", "compatibility.md")

_HEAD: Final = """\
# Supported combinations

Made by `python -m devtools.api_reference`; do not edit. An entry applies if all of its parts hold.
V1 and V2 are vLLM's model runners: V2 is the default on CUDA, and on a CPU with Triton. Select one with
`VLLM_USE_V2_MODEL_RUNNER` in `engine.env`: `"1"` is V2, `"0"` V1.

## What ran
On a CPU, V2 with Triton's interpreter. A cell is one of `tests/engine/test_matrix.py` (results by vLLM:
`tests/engine/matrix.md`). On an H200 with vLLM 0.32, `tests/gpu` compared one rank, V2, async, with a tiny
float32 model, without drafts and with DraftModel, NGram, Eagle3, and MTP with one draft token. Eagle3 heads
are made for the tests; MTP layers are MiMo's, or made.

"""
_REFUSED: Final = """
Nothing else was run, even where vLLM's configuration accepts it: DSpark, DFlash, `verification: Adaptive`,
multimodal models, `Probabilistic` and `Block` without Eagle3, LoRA with another method than DraftModel,
speculation with several engines, dual batch overlap. vLLM refuses dual batch overlap on V2 for multimodal
models, state space layers, context parallelism and PIECEWISE CUDA graphs.

## What is refused, or falls back
The operator refuses a combination with `Compatible=False`, the plugin and vLLM at start (`RefusedAtStart`). A
combination that falls back runs with less than the spec asks for; `guidedmodel validate` and `Compatible` say
why. A test compares each entry with the configuration of vLLM {versions}, on a CPU and as on an NVIDIA GPU.
"""
_HEADINGS: Final = {
    "operator refuses": "The operator refuses",
    "plugin refuses": "The plugin refuses at start",
    "falls back": "Falls back",
}


class Ran(NamedTuple):
    """What an engine of ours has generated text with."""

    where: str  # in the words of guided_contract.combinations
    test: str
    remark: str = ""


_MATRIX: Final = "tests/engine/test_matrix.py"
_FIELDS: Final = "tests/e2e/test_run_fields.py"
RAN: Final = (
    Ran("no speculation; V2", f"{_MATRIX} V2-tp1-none-async"),
    Ran("no speculation; V1; one stage", f"{_MATRIX} V1-tp1-none-async"),
    Ran("NGram; V2; on a GPU", f"{_MATRIX} V2-tp1-ngram_gpu-async"),
    Ran("NGram; on a CPU; scheduling Sync", f"{_MATRIX} V1-tp1-ngram-sync"),
    Ran("DraftModel; V1; on a CPU", f"{_MATRIX} V1-tp1-draft-sync"),
    Ran("DraftModel; V2", f"{_MATRIX} V2-tp1-draft-async"),
    Ran("DraftModel; V1; one stage", f"{_MATRIX} V1-tp2-draft-async"),
    Ran("Eagle3; V2", f"{_MATRIX} V2-tp1-eagle3-async"),
    Ran("Eagle3; V1; one stage", f"{_MATRIX} V1-tp1-eagle3-async"),
    Ran("MTP; V2", f"{_MATRIX} V2-tp1-mtp-async"),
    Ran("MTP; V1; scheduling Auto or scheduling Async; one stage", f"{_MATRIX} V1-tp1-mtp-async"),
    Ran("MTP; V1; scheduling Sync", f"{_MATRIX} V1-tp1-mtp-sync"),
    Ran("probabilistic drafts; Eagle3; V2", f"{_MATRIX} V2-tp1-eagle3-probabilistic-async"),
    Ran(
        "probabilistic drafts; Eagle3; V1",
        f"{_MATRIX} V1-tp1-eagle3-probabilistic-async",
        "not by a request's seed",
    ),
    Ran("verification Block; V2; Eagle3", f"{_MATRIX} V2-tp1-eagle3-block-async"),
    Ran("tensor parallelism; no speculation or DraftModel", f"{_MATRIX} V2-tp2-draft-async"),
    Ran("tensor parallelism; Eagle3; V2", f"{_MATRIX} V2-tp2-eagle3-async"),
    Ran("tensor parallelism; NGram; V2", f"{_MATRIX} V2-tp2-ngram_gpu-async"),
    Ran(
        "pipeline stages; no speculation or NGram; V2; on a GPU",
        f"{_MATRIX} V2-tp1pp2-ngram_gpu-async",
    ),
    Ran(
        "pipeline stages; Eagle3; V2",
        f"{_MATRIX} V2-tp1pp2-eagle3-async",
        "if the model passes its hidden states on, as Llama's",
    ),
    Ran("pipeline stages; MTP; V2", f"{_MATRIX} V2-tp1pp2-mtp-async"),
    Ran("pipeline stages; no speculation; V1", f"{_MATRIX} V1-tp1pp2-none-sync", "synchronous"),
    Ran("several engines; no speculation", "tests/engine/test_parallel.py"),
    Ran("placement Scheduler", "tests/e2e/test_scheduler_placement.py"),
    Ran("logits processors; V2", f"{_MATRIX} V2-tp2-draft-async"),
    Ran("logits processors; V1", f"{_MATRIX} V1-tp1-draft-sync"),
    Ran("LoRA; no speculation; V2", f"{_MATRIX} V2-tp1-none-async-lora"),
    Ran("LoRA; DraftModel; V1", _FIELDS),
    Ran("`disableAbove`; V2; NGram or DraftModel or Eagle3 or MTP", f"{_MATRIX} V2-tp1-draft-async"),
    Ran("`disableAbove`; V1; on a CPU; NGram or DraftModel or Eagle3 or MTP", _FIELDS),
    Ran(
        "`numTokens: Auto`; V2; DraftModel or Eagle3",
        "tests/contract/test_drafts_by_load.py",
        "vLLM's scheduler alone",
    ),
    Ran("batch-sharded sampling; tensor parallelism; V2", f"{_MATRIX} V2-tp2-draft-async-sharded"),
)


def combinations_text() -> str:
    """Return the page."""
    ran = (f"- {_what(one)}: `{one.test.removeprefix(f'{_MATRIX} ')}`\n" for one in RAN)
    refused = "".join(_section(happens) for happens in _HEADINGS)
    return "".join([_HEAD, *ran, _REFUSED.format(versions=", ".join(SUPPORTED_VLLM)), refused])


def _what(one: Ran) -> str:
    return f"{one.where} ({one.remark})" if one.remark else one.where


def _section(happens: str) -> str:
    rows = (row for row in ROWS if row.happens.startswith(happens))
    listed = "".join(f"- **{row.where}**: {_advice(row)}\n" for row in rows)
    return f"\n### {_HEADINGS[happens]}\n\n{listed}"


def _advice(row: Row) -> str:
    """Return what to set, after the reason where the facts alone do not show it."""
    is_plain = ";" in row.where and not row.happens.startswith("falls back")
    return row.message.partition(": ")[2] if is_plain else row.message

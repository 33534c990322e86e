"""docs/compatibility.md: the table of what goes with what, as people read it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from guided_contract.combinations.row import ALL, DRAFTS, GPUS, ON_V1, VERDICTS, Row
from guided_contract.combinations.table import ROWS
from guided_contract.compatibility import SUPPORTED_VLLM

COMBINATIONS_FILE: Final = Path("docs", "compatibility.md")

_HEAD: Final = """\
# What goes with what

Made by `python -m devtools.api_reference`; do not edit.

One table decides before a pod starts, and on its ranks what only they know. A row holds for an engine if
all holds that stands in its second column. Every row that holds counts; one that refuses is enough.

- **supported**: by vLLM and by us, and run by the test that is named, on a CPU.
- **supported by vLLM, not run by us**: vLLM's configuration takes it. No engine of ours has generated text
  with it, but for what the row says.
- **falls back**: it runs, but not as asked for.
- **refused**: by the API server (a rule of the schema), by the operator (`Compatible=False`), by the plugin
  when a rank starts, or by vLLM at its start. The last two are the reason `RefusedAtStart`, with the words.

`guidedmodel validate` and the condition `Compatible` say which rows of the second and third kind hold, but
for the one of NVIDIA's GPUs; where a resource alone does not decide on the model runner, those of both. That
a model takes more than text they know by options that only such a model has a use for. A test has vLLM
{version} make its own configuration for each row, on a CPU and as on an NVIDIA GPU, and compares verdict,
scheduling, model runner and the number of draft tokens by batch size, as `disableAbove` and `numTokens: Auto`
have it; of rows for other devices, and for models that it cannot load there, vLLM's words alone. Two warnings
of vLLM's are in no row, and change nothing: with speculation and fewer than 8192 tokens a step
(`--max-num-batched-tokens`; its default on a CPU, on an A100, and on GPUs below 70 GB, is fewer), that these
may be few; with MTP and `numTokens` above 1, that one layer then runs several times.

Model Runner V2 is what vLLM takes on CUDA, and on a CPU with a Triton, where no row says otherwise. The
variable `VLLM_USE_V2_MODEL_RUNNER` in `engine.env` chooses: `"1"` is V2, `"0"` V1.
"""
_FACTS: Final = {"method": "", "device": "on a ", "runner": "Model Runner ", "scheduling": "asked for: "}
_SETS: Final[Mapping[tuple[str, tuple[Any, ...]], str]] = {
    ("device", GPUS): "on a GPU",
    ("device", ("CUDA",)): "on an NVIDIA GPU",
    ("device", ("Other",)): "on another GPU",
    ("method", ALL): "speculation",
    ("method", ON_V1): "speculation, not by DSpark",
    ("method", DRAFTS): "speculation with a draft model or head",
}
_SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "staged": ("pipeline stages", "one stage"),
    "replicated": ("several engines", "one engine"),
    "split": ("tensor parallelism", "no tensor parallelism"),
    "on_ranks": ("placement Rank", "placement Scheduler"),
    "processors": ("logits processors", "no logits processors"),
    "dense": ("a DenseFactory", "no DenseFactory"),
    "undrafted": ("a processor without `supports_speculation`", "no such processor"),
    "foreign": ("a class of vLLM's V1 interface", "no such class"),
    "lora": ("LoRA", "no LoRA"),
    "multimodal": ("a multimodal model", "a model of text alone"),
    "hybrid": ("a model with attention and state space layers", "no such model"),
    "piecewise": ("piecewise CUDA graphs", "no piecewise CUDA graphs"),
    "context_parallel": ("context parallelism", "no context parallelism"),
    "high_throughput": ("`--enable-dbo` with `deepep_high_throughput`", "no such kernels"),
    "reasoning_plugin": ("a reasoning parser of a file", "no such parser"),
    "sharded": ("batch-sharded sampling", "no batch-sharded sampling"),
    "unshardable": ("fewer sequences than ranks, or `--max-logprobs=-1`", "no such bounds"),
    "eager": ("no full CUDA graphs", "graphs"),
    "dbo": ("dual batch overlap", "no dual batch overlap"),
    "by_batch": ("`disableAbove`", "no `disableAbove`"),
    "by_load": ("`numTokens: Auto`", "a number of tokens"),
    "crowded": ("more drafts than a step has room for", "room for all drafts"),
    "fast_prefill": ("fast prefill", "no fast prefill"),
    "overactive": ("more active sequences than places", "no more active sequences than places"),
    "short_step": ("fewer tokens a step than places", "a token a step for each place"),
    "probabilistic": ("probabilistic drafts", "greedy drafts"),
    "block": ("verification Block", "another verification"),
    "adaptive": ("verification Adaptive", "verification not Adaptive"),
}
_DECIDERS: Final = {"CEL": "API server", "Operator": "operator", "Plugin": "plugin", "vLLM": "vLLM"}
_UNSAID: Final = {"method": "no speculation", "scheduling": "Auto"}


def combinations_text() -> str:
    """Return the page."""
    lines = [
        _HEAD.format(version=SUPPORTED_VLLM[-1]),
        "| what | where | verdict | why, and what to set instead | says so |",
        "| --- | --- | --- | --- | --- |",
        *map(_line, ROWS),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    field = f" (`{row.field}`)" if row.field else ""
    verdict = f"**{VERDICTS[row.verdict]}**"
    who = f"`{row.test}`" if row.test else ", ".join(_DECIDERS[each] for each in row.decided_by)
    where = "; ".join(_fact(name, values) for name, values in row.when.items())
    return f"| {row.name}{field} | {where} | {verdict} | {row.message} | {who} |"


def _fact(name: str, values: tuple[Any, ...]) -> str:
    if (name, values) in _SETS:
        return _SETS[name, values]
    if values in ((True,), (False,)):
        yes, no = _SWITCHES[name]
        return yes if values[0] else no
    return _FACTS[name] + " or ".join(value or _UNSAID[name] for value in values)

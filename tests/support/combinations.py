"""Examples of the rows of guided_contract.combinations, and of what ran: resources, and their pods' words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

from devtools import tinymodel
from devtools.combinations_page import Ran

from guided_contract.combinations.row import Facts, Row, asked
from guided_contract.combinations.table import ROWS
from guided_contract.compatibility import minor_of
from guided_engine import versions
from guided_operator.api import GuidedModel
from support.manifests import changed, minimal
from support.vllm_start import command

_SCHEDULING = {"": "Auto", "Async": "On", "Sync": "Off"}
_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_DEVICES = ("CPU", "CUDA")
# What vLLM takes for granted elsewhere; with fewer tokens a step it warns of speculation.
_WORDS = ("--max-num-batched-tokens=8192",)
_DBO = ("--enable-dbo", "--all2all-backend=deepep_low_latency")
MOST_BELOW = 8  # disableAbove
_TEXT = {
    "vocab_size": 8192,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "MTP": {"model_type": "qwen2", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1},
    "Eagle3": {"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 8192},
    "DFlash": {
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "block_size": 4,
        "dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 1]},
    },
    "DSpark": {
        "model_type": "qwen3",
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 4,
        "mask_token_id": 1,
        "target_layer_ids": [0, 1],
        "markov_rank": 4,
        "markov_head_type": "vanilla",
    },
}


MINOR = minor_of(versions.installed_vllm() or "")
# What vLLM says where it refuses by itself what a row refuses, too: by how the row begins.
_REFUSED = {
    "DSpark; V1": "Model Runner V1 does not support: dspark speculative decoding",
    "verification Adaptive; LoRA": "Adaptive verification is not currently compatible with LoRA",
    "verification Adaptive; pipeline": "verification is not currently compatible with pipeline parallelism",
    "verification Adaptive; on a CPU": "Adaptive verification requires full CUDA graphs",
    "verification Adaptive; no full": "Adaptive verification requires full CUDA graphs",
    "verification Adaptive; V1": "adaptive draft verification",
    "verification Adaptive; batch": "it does not yet work with adaptive verification",
    "pipeline stages; V1; scheduling Async": "not support: pipeline parallelism with async scheduling",
    "LoRA; more": "Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens",
    "batch-sharded sampling; one rank": "sampling",
    "batch-sharded sampling; tensor parallelism; fewer": "in this configuration for the following reason(s)",
    "batch-sharded sampling; tensor parallelism; V1": "V1 does not support: batch-sharded sampling",
    "dual batch overlap; V1; on a GPU; DSpark": "V1 does not support: dspark speculative decoding",
    "dual batch overlap; V2; on a GPU; speculation": "dual batch overlap with speculative decoding",
    "dual batch overlap; V2; on a GPU; LoRA": "dual batch overlap with LoRA",
    "dual batch overlap; V2; on a GPU; pipeline": "dual batch overlap with pipeline parallelism",
    "fast prefill": "Fast prefill optimization for KV sharing is not compatible with EAGLE",
    "more active sequences than places": "cannot be greater than max_num_seqs",
    "fewer tokens a step than places": "must be greater than or equal to max_num_seqs",
}
if MINOR == "0.31":
    _REFUSED["NGram; V2; vLLM 0.31"] = "not yet support: speculative method 'ngram"
if MINOR >= "0.33":
    _REFUSED["pipeline stages; V1; scheduling Async"] = (
        "not supported by the V1 model runner with pipeline parallelism"
    )
else:
    _REFUSED["NGram; on a CPU; scheduling Async"] = (
        "async scheduling is only supported with EAGLE/MTP/Draft Model"
    )
REFUSED = {
    row.where: words
    for beginning, words in _REFUSED.items()
    for row in ROWS
    if row.where.startswith(beginning)
}
# What vLLM warns of, and where: all of it, and nowhere else.
WARNED = {
    "Dynamic speculative decoding is not supported with data parallelism": (
        "`disableAbove`; several engines",
        "`numTokens: Auto`; several engines",
    ),
    "Dynamic speculative decoding changes the target verification length at runtime.": (
        "`disableAbove`; one engine; V1; vLLM before 0.33",
        "`numTokens: Auto`; one engine; V1; vLLM before 0.33",
        "`disableAbove`; one engine; V1; a drafting model",
        "`numTokens: Auto`; one engine; V1; a drafting model",
        "`disableAbove`; one engine; V1; on a CPU",
        "`numTokens: Auto`; one engine; V1; on a CPU",
    ),
    "speculative method on Model Runner V1.": (
        "`disableAbove`; one engine; V1; on a GPU; NGram; vLLM 0.33 or later",
        "`numTokens: Auto`; one engine; V1; on a GPU; NGram; vLLM 0.33 or later",
    ),
    "Model Runner V2 does not yet support dual batch overlap; using the V1 model runner instead.": (
        "dual batch overlap; V1; on a GPU",
        "dual batch overlap; on a CPU; vLLM 0.33 or later",
    ),
    "Dual-Batch Overlap is not supported on CPU, disabled.": ("dual batch overlap; on a CPU",),
    **{row.words: tuple(each.where for each in ROWS if each.words == row.words) for row in ROWS if row.words},
}


class Example(NamedTuple):
    """One engine of which a row holds."""

    row: Row | Ran
    facts: Facts

    @property
    def name(self) -> str:
        wanted = asked(self.row.where)
        free = [name for name, values in wanted.items() if len(values) > 1 and name != "device"]
        return ", ".join(
            [self.row.where, *(str(getattr(self.facts, name)) for name in free), self.facts.device]
        )

    def asked(self, models: Path) -> dict[str, Any]:
        """Return what its pods start: words for vLLM, and variables."""
        facts = self.facts
        with mock.patch.object(versions, "builds_for_cpu", return_value=facts.device == "CPU"):
            started = command(resource(facts, models))
        env = {name: value for name, value in started.env.items() if name == _RUNNER}
        return {"words": [*started.argv, *_WORDS], "env": env}


def examples(row: Row | Ran) -> Iterator[Example]:
    """Yield engines that have each choice that a row leaves, and each device that it holds on."""
    when = {"minor": (MINOR,), **asked(row.where)}
    if MINOR not in when["minor"]:
        return
    when["minor"] = (MINOR,)
    free = {**when, "device": [each for each in when.get("device", _DEVICES) if each in _DEVICES]}
    for number in range(max(map(len, free.values()))):
        facts = Facts(**{name: values[number % len(values)] for name, values in free.items()})
        # Other rows are of Model Runner V1, which it alone has.
        is_without_ngram = MINOR == "0.31" and (facts.runner == "V2" or facts.adaptive or facts.dbo)
        if facts.method != "NGram" or not is_without_ngram or "vLLM 0.31" in row.where:
            yield Example(row, facts)


def runner(facts: Facts) -> Literal["V1", "V2"]:
    """Return the model runner that vLLM takes by itself, on a CPU with a Triton."""
    overlaps = facts.dbo and facts.device == "CUDA"
    return "V1" if overlaps or (MINOR == "0.31" and facts.method == "NGram") else "V2"


def numbers(facts: Facts, largest: int) -> list[int] | None:
    """Return how many tokens are drafted at each batch size from 1 on; None: always the same."""
    is_ignored = (
        facts.method == "NGram" and facts.device == "CUDA" and facts.runner == "V1" and MINOR >= "0.33"
    )
    if facts.replicated or is_ignored or not (facts.by_batch or facts.by_load):
        return None
    most = _most(facts)
    if facts.by_batch:
        return [most if batch <= MOST_BELOW else 0 for batch in range(1, largest + 1)]
    # Where nobody chooses, all but at two of the largest batch sizes that vLLM surely has.
    few = {126: 1, 127: 0} if most > 1 else {127: 0}
    return [few.get(batch, most) for batch in range(1, largest + 1)]


def _most(facts: Facts) -> int:
    return 1 if facts.method == "MTP" else 3


def resource(facts: Facts, models: Path) -> GuidedModel:
    """Return a GuidedModel of these facts, whether or not its rules allow it."""
    target = str(_model(models, "MTP") if facts.method == "MTP" else tinymodel.models() / "tiny")
    args = ["--max-model-len=256", *(_DBO if facts.dbo else ())]
    args += ["--enforce-eager"] if facts.eager else []
    args += ["--enable-batch-sharded-sampling"] if facts.sharded else []
    args += ["--kv-sharing-fast-prefill"] if facts.fast_prefill else []
    args += [*_WORDS] if facts.crowded or facts.short_step else []
    args += ["--max-num-active-seqs=9"] if facts.overactive else []
    fields: dict[str, Any] = {
        "model__uri": f"file://{target}",
        "engine__args": args,
        "engine__version": versions.installed_vllm().split("+")[0],  # what is installed
        "engine__image": "engine",
        "parallelism": {
            "pipeline": 2 if facts.staged else 1,
            "data": 2 if facts.replicated else 1,
            "tensor": 2 if facts.split else 1,
        },
        "guidedDecoding__placement": "Rank" if facts.on_ranks else "Scheduler",
    }
    if facts.crowded:
        args.append("--max-num-seqs=8192")
    elif facts.short_step:
        args.append("--max-num-seqs=8193")
    elif facts.overactive:
        args.append("--max-num-seqs=8")
    elif facts.unshardable:
        args.append("--max-num-seqs=1")
    if facts.device == "CPU":
        fields["engine__accelerator"] = {"type": "None"}
    if facts.runner and (facts.device == "CPU" or facts.runner != runner(facts)):
        fields["engine__env"] = [{"name": _RUNNER, "value": "1" if facts.runner == "V2" else "0"}]
    if facts.processors:
        fields["logitsProcessors"] = [
            {"name": "a", "factory": "guided_engine.processors.no_repeat_ngram:NoRepeatNgram"}
        ]
    if facts.lora:
        fields["lora"] = {"adapters": [{"name": "a", "uri": "pvc://adapters/a"}]}
    if facts.method:
        fields["speculative"] = _speculative(facts, models)
    return GuidedModel.model_validate(changed(minimal(), **fields))


def _speculative(facts: Facts, models: Path) -> dict[str, Any]:
    most = _most(facts)
    asked: dict[str, Any] = {
        "method": facts.method,
        **({"numTokens": "Auto", "maxTokens": most} if facts.by_load else {"numTokens": most}),
        "asyncScheduling": _SCHEDULING[facts.scheduling],
    }
    if facts.method == "DraftModel":
        asked["draftModel"] = {"uri": f"file://{tinymodel.models() / 'tiny-draft'}"}
    elif facts.method not in {"NGram", "MTP"}:
        asked["draftModel"] = {"uri": f"file://{_model(models, facts.method or '')}"}
    if facts.by_batch:
        asked["disableAbove"] = MOST_BELOW
    if facts.probabilistic:
        asked["draftSampling"] = "Probabilistic"
    if facts.block or facts.adaptive:
        asked["verification"] = "Block" if facts.block else "Adaptive"
    return asked


def _model(models: Path, name: str) -> Path:
    """Return a folder with a configuration; weights are not asked for."""
    folder = models / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**_TEXT, **_CONFIGS[name]}))
    return folder

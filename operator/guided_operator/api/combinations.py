"""The table of what does not go together (guided_contract.combinations), of a spec."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from guided_contract.combinations.row import REFUSALS, Facts
from guided_contract.combinations.table import ROWS, that_hold
from guided_contract.compatibility import minor_of
from guided_operator.api.words import option, switch

if TYPE_CHECKING:
    from guided_operator.api.engine import Engine
    from guided_operator.api.spec import GuidedModelSpec

RUNNER: Final = "VLLM_USE_V2_MODEL_RUNNER"
_SEQUENCES: Final = "--max-num-seqs"
# Sequences and tokens of a step that vLLM takes for granted, by the GPU; and what has it take others.
_ON_GPUS: Final = ((1024, 16384), (1024, 8192), (256, 2048))
_OTHER_DEFAULTS: Final = {"--performance-mode", "--no-enable-chunked-prefill", "--disable-chunked-prefill"}
# What vLLM takes where --max-num-seqs is not given, at least: on a CPU with one rank.
_LEAST_MAX_NUM_SEQS: Final = 128
_SCHEDULING: Final[Mapping[str, Any]] = {"Auto": "", "On": "Async", "Off": "Sync"}


def facts_of(spec: "GuidedModelSpec") -> Facts:
    """Return what a spec says of its engines; the model, and what is installed, say the rest."""
    asked, spread, switches = spec.speculative, spec.parallelism, _switches(spec.engine)
    dbo = switches["enable-dbo"] or _microbatches(spec.engine)
    minor = minor_of(spec.engine.vllm_version or "")
    is_on_v1 = dbo or (minor == "0.31" and asked is not None and asked.method == "NGram")
    sequences = _number(spec.engine, _SEQUENCES)
    return Facts(
        minor=minor,
        method=asked.method if asked else "",
        device=_device(spec.engine),
        runner=_runner(spec.engine, is_on_v1=is_on_v1),
        scheduling=_SCHEDULING[asked.async_scheduling] if asked else "",
        staged=spread.pipeline > 1,
        replicated=spread.data > 1,
        split=spread.tensor > 1,
        on_ranks=spec.guided_decoding.placement == "Rank",
        processors=bool(spec.logits_processors),
        lora=spec.lora is not None,
        sharded=switches["enable-batch-sharded-sampling"],
        unshardable=_unshardable(spec.engine, spread.tensor),
        fast_prefill=switches["kv-sharing-fast-prefill"],
        overactive=_exceeds(_number(spec.engine, "--max-num-active-seqs"), sequences),
        short_step=_exceeds(sequences, _number(spec.engine, "--max-num-batched-tokens")),
        eager=switches["enforce-eager"] or _graphless(spec.engine),
        dbo=dbo,
        by_batch=asked is not None and asked.disable_above is not None,
        by_load=asked is not None and asked.by_load,
        crowded=asked is not None
        and _crowded(spec.engine, asked.most_tokens, spread.tensor * spread.pipeline),
        probabilistic=asked is not None and asked.draft_sampling == "Probabilistic",
        block=asked is not None and asked.verification == "Block",
        adaptive=asked is not None and asked.verification == "Adaptive",
    )


def remarks(facts: Facts) -> Iterator[str]:
    """Yield what falls back, and what vLLM refuses on one of its model runners.

    Where the model runner is not known, of both, but for one that the operator would refuse.
    """
    either = [facts.runner] if facts.runner else ["V1", "V2"]
    known = [msgspec.structs.replace(facts, runner=each) for each in either]
    known = [each for each in known if not any(that_hold(each, "operator refuses"))] or known
    for row in ROWS:
        if runners := [each.runner for each in known if row.holds(each)]:
            where = "" if len(runners) == len(known) else f" on Model Runner {runners[0]}"
            told = "vLLM refuses it at its start" if row.happens in REFUSALS else "falls back"
            yield f"spec.{row.field}: {told}{where}: {row.told(facts)}"


def _device(engine: "Engine") -> Any:
    if engine.accelerator.type == "None":
        return "CPU"
    is_nvidia = any(name.startswith("nvidia.com/") for name in engine.accelerator.resource_of(1))
    return "CUDA" if is_nvidia else "Other"


def _runner(engine: "Engine", *, is_on_v1: bool) -> Any:
    """Return the model runner that is asked for, else that vLLM takes, where that is certain.

    `is_on_v1`: V2 lacks something that is asked for.
    """
    asked = next((variable.value for variable in engine.env if variable.name == RUNNER), None)
    if asked in {"0", "1"}:
        return "V2" if asked == "1" else "V1"
    if asked is not None or _device(engine) == "CPU":
        return ""  # whether a CPU's build has a Triton decides
    if is_on_v1:
        return "V1"
    return "V2" if _device(engine) == "CUDA" else ""


def _switches(engine: "Engine") -> dict[str, bool]:
    known = ("enable-dbo", "enable-batch-sharded-sampling", "enforce-eager", "kv-sharing-fast-prefill")
    found = dict.fromkeys(known, False)
    for name in filter(None, map(option, engine.args)):
        on = switch(name)
        found |= {each: name == on for each in known if _means(on, f"--{each}")}
    return found


def _means(name: str, full: str) -> bool:
    """Return whether vLLM reads an option as another, whose beginning it may be."""
    return name.strip("-") != "" and full.startswith(name)


def _last(engine: "Engine", name: str) -> str:
    """Return the value of an option that counts: its last one; "" where there is none."""
    value = ""
    for word, following in itertools.pairwise([*engine.args, ""]):
        if _means(option(word), name):
            value = word.partition("=")[2] if "=" in word else following
    return value


def _microbatches(engine: "Engine") -> bool:
    """Return whether --ubatch-size overlaps batches as --enable-dbo does; a CPU's row is of that alone."""
    size = _number(engine, "--ubatch-size")
    return size is not None and size > 1 and _device(engine) != "CPU"


def largest_batch(engine: "Engine") -> int:
    """Return how many sequences vLLM surely takes at a time: where nothing says so, as many as on a CPU.

    Nor more than tokens, of which each has one.
    """
    tokens = _number(engine, "--max-num-batched-tokens")
    most = _number(engine, _SEQUENCES) or _LEAST_MAX_NUM_SEQS
    return most if tokens is None else max(1, min(most, tokens))


def _number(engine: "Engine", name: str) -> int | None:
    """Return the number that an option of the engine's arguments has; None: none, or no plain one."""
    value = _last(engine, name)
    return int(value) if value.isdecimal() else None


def _exceeds(number: int | None, limit: int | None) -> bool:
    """Return whether both are known, and one is more than the other."""
    return number is not None and limit is not None and number > limit


def _choice(engine: "Engine", name: str) -> str:
    """Return an option's value of those that vLLM numbers or names: 01 and 1.0 are 1 to it, none is NONE."""
    value = _last(engine, name)
    is_whole = re.fullmatch(r"0*(\d+)(\.0*)?", value)
    return is_whole[1] if is_whole else value.upper()


def _graphless(engine: "Engine") -> bool:
    """Return whether an argument beside --enforce-eager leaves full CUDA graphs out; values as in vLLM."""
    graphs = _choice(engine, "--compilation-config.cudagraph-mode")
    stock = _choice(engine, "--compilation-config.mode") in {"1", "STOCK_TORCH_COMPILE"}
    is_left_out = (graphs or _choice(engine, "--optimization-level")) in {"0", "1", "NONE", "PIECEWISE"}
    return stock or is_left_out


def _unshardable(engine: "Engine", ranks: int) -> bool:
    """Return whether rows could not be shared out, or would have no bounds."""
    few = _exceeds(ranks, _number(engine, _SEQUENCES))
    return few or _last(engine, "--max-logprobs").startswith("-")


def _crowded(engine: "Engine", drafts: int, ranks: int) -> bool:
    """Return whether a step has no room for what a full batch verifies, whichever defaults vLLM takes."""
    given = _last(engine, "--max-num-batched-tokens")
    if {option(word) for word in engine.args} & _OTHER_DEFAULTS or (given and not given.isdecimal()):
        return False
    defaults = [(128 * ranks, 2048 * ranks)] if _device(engine) == "CPU" else _ON_GPUS
    return all(
        (_number(engine, _SEQUENCES) or min(seqs, int(given or tokens))) * (drafts + 1) > int(given or tokens)
        for seqs, tokens in defaults
    )

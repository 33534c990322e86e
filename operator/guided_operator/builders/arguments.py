"""The command line of vLLM's API server. The launcher adds two options of its own where vLLM is supported."""

import json
from typing import Any, Final

from guided_contract import backends
from guided_contract.combinations.row import METHODS
from guided_operator.api import GuidedModel
from guided_operator.api.combinations import largest_batch
from guided_operator.api.speculative import Speculative
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.source import parse_source

_BACKENDS: Final = {"Auto": "auto", **backends.NAMES}
_ASYNC: Final = {"Auto": [], "On": ["--async-scheduling"], "Off": ["--no-async-scheduling"]}


def engine_arguments(gm: GuidedModel, site: Site) -> list[str]:
    """Return the arguments in a fixed order, the user's own last."""
    spec = gm.spec
    arguments = [
        "--model",
        parse_source(spec.model.uri).location(site),
        "--served-model-name",
        gm.served_name,
        "--host",
        site.bind_host,
        "--port",
        str(site.ports.engine),
        "--tensor-parallel-size",
        str(spec.parallelism.tensor),
    ]
    if spec.parallelism.pipeline > 1:
        arguments += ["--pipeline-parallel-size", str(spec.parallelism.pipeline)]
    if spec.parallelism.data > 1:
        arguments += ["--data-parallel-size", str(spec.parallelism.data)]
    if spec.model.revision is not None:
        arguments += ["--revision", spec.model.revision, "--tokenizer-revision", spec.model.revision]
    if spec.model.trust_remote_code:
        arguments += ["--trust-remote-code"]
    arguments += _lora(gm, site)
    arguments += _speculative(gm, site)
    arguments += _structured_outputs(gm)
    return arguments + spec.engine.args


def _lora(gm: GuidedModel, site: Site) -> list[str]:
    lora = gm.spec.lora
    if lora is None:
        return []
    modules = [
        _json({"name": adapter.name, "path": parse_source(adapter.uri).location(site)})
        for adapter in lora.adapters
    ]
    return ["--enable-lora", "--lora-modules", *modules]


def _speculative(gm: GuidedModel, site: Site) -> list[str]:
    speculative = gm.spec.speculative
    if speculative is None:
        return []
    options: dict[str, Any] = {
        "method": METHODS[speculative.method],
        "num_speculative_tokens": speculative.most_tokens,
    }
    if speculative.draft_model is not None:
        options["model"] = parse_source(speculative.draft_model.uri).location(site)
        options["draft_tensor_parallel_size"] = gm.spec.parallelism.tensor
        if speculative.draft_model.revision is not None:
            options["revision"] = speculative.draft_model.revision
    if speculative.method == "NGram":
        options |= {"prompt_lookup_min": 2, "prompt_lookup_max": 5}  # measured: docs/speculation.md
    if speculative.draft_sampling == "Probabilistic":
        options["draft_sample_method"] = "probabilistic"
    if speculative.verification == "Block":
        options["rejection_sample_method"] = "block"
    if speculative.verification == "Adaptive":
        options["enable_adaptive_verification"] = True
    if (above := speculative.disable_above) is not None:
        # The last entry holds for all larger batches, too.
        schedule = [[1, above, speculative.most_tokens], [above + 1, above + 1, 0]]
        options["num_speculative_tokens_per_batch_size"] = schedule
    elif speculative.by_load:
        schedule = schedule_by_load(speculative.most_tokens, largest_batch(gm.spec.engine))
        options["num_speculative_tokens_per_batch_size"] = schedule
    return ["--speculative-config", _json(options), *_scheduling(gm, speculative)]


def _scheduling(gm: GuidedModel, speculative: Speculative) -> list[str]:
    """Return the argument that chooses between async and sync, none where vLLM is to choose."""
    asked = speculative.async_scheduling
    # The plugin keeps async on CPUs, where vLLM has it off (cpu-settings in its ledger).
    if asked == "Auto" and gm.spec.engine.accelerator.type == "None" and speculative.method != "NGram":
        asked = "Off"
    return _ASYNC[asked]


def schedule_by_load(most: int, largest: int) -> list[list[int]]:
    """Return a schedule that holds all numbers of drafts that the engine may choose.

    vLLM captures graphs for the numbers in it, each up to the largest batch size that has it: all are near
    the top. Where the engine chooses nothing, it is the largest number but for one or two batch sizes.
    """
    others = [number for number in (1, 0) if number < most]
    held = others[-(largest - 1) :] if largest > 1 else []  # fewer sizes than numbers: the rest is left out
    entries = [[1, max(largest - len(held) - 1, 1), most]]
    for number in held:
        after = entries[-1][1] + 1
        entries.append([after, after, number])
    if entries[-1][1] < largest:
        entries.append([largest, largest, most])  # and beyond, where vLLM takes more
    return entries


def _structured_outputs(gm: GuidedModel) -> list[str]:
    """Return what vLLM's own path needs to know; with placement Rank the configuration file says it."""
    guided = gm.spec.guided_decoding
    if guided.placement != "Scheduler":
        return []
    options = {"backend": _BACKENDS[guided.backend], "disable_any_whitespace": guided.whitespace == "Compact"}
    return ["--structured-outputs-config", _json(options)]


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))

"""The options of vLLM's API server that `spec.engine.args` may carry: an allow-list.

What is not on it is refused, also an option that a later vLLM adds: what typed fields, launcher and plugin
own; what loads code or opens a port; what reads or writes files of the user's choice; what the pod as it is
made cannot serve. tests/contract compares with vLLM's own parser, by arity and name, and holds a reason for
each option that is left out. Only full names: vLLM's parser takes a unique beginning for the option.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from guided_operator.api.rule import matches


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Alone, and as --no-NAME.
SWITCHES: Final = _names("""
    allow-credentials allow-deprecated-quantization async-scheduling cohere-is-reasoning-model
    cudagraph-metrics disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce
    disable-fastapi-docs disable-hybrid-kv-cache-manager disable-nccl-for-dp-synchronization
    disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
    enable-batch-sharded-sampling enable-chunked-prefill enable-dbo enable-ep-weight-filter enable-eplb
    enable-expert-parallel enable-flash-late-interaction enable-flashinfer-autotune
    enable-force-include-usage enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs
    enable-log-requests enable-logging-iteration-details enable-mfu-metrics enable-mixed-moe-lora-format
    enable-moe-shared-loras enable-per-request-metrics enable-prefix-caching enable-prompt-tokens-details
    enable-request-id-headers enable-scale-out enable-server-load-tracking enable-tokenizer-info-endpoint
    enable-tower-connector-lora enforce-eager exclude-tools-when-tool-choice-none fully-sharded-loras
    interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill language-model-only
    log-error-stack long-prefill-token-threshold-adaptive mm-device-do-normalize mm-encoder-only numa-bind
    return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling specialize-active-lora
    swa-bounded-replay use-fp64-gumbel use-replayssm use-tqdm-on-load
""")
# With one value.
VALUES: Final = _names("""
    all2all-backend allowed-headers allowed-methods allowed-origins anthropic-disabled-thinking-effort
    api-server-count attention-backend block-size chat-template chat-template-content-format cohere-format
    config-format cpu-offload-gb dbo-decode-token-threshold dbo-prefill-token-threshold
    disable-access-log-for-endpoints distributed-timeout-seconds dp-sync-interval dtype
    expert-placement-strategy fingerprint-mode fingerprint-value gdn-prefill-backend generation-config
    gpu-memory-utilization h11-max-header-count h11-max-incomplete-event-size kda-decode-backend
    kda-prefill-backend kv-cache-dtype kv-cache-memory-bytes kv-cache-metrics-sample kv-offloading-size
    linear-backend load-format log-level logprobs-mode long-prefill-token-threshold lora-dtype
    mamba-backend mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype
    max-cudagraph-capture-size max-log-len max-logprobs max-lora-cls-labels max-num-active-seqs
    max-num-batched-tokens max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens max-num-seqs
    max-parallel-loading-workers mm-encoder-attn-backend mm-encoder-tp-mode mm-hasher-algorithm
    mm-processor-cache-gb mm-processor-cache-type mm-shm-cache-max-object-size-mb model-impl moe-backend
    num-gpu-blocks-override optimization-level per-request-spec-decode-metrics performance-mode
    prefill-schedule-interval prefix-caching-hash-algo quantization reasoning-parser renderer-num-workers
    response-role safetensors-load-strategy safetensors-prefetch-num-threads scheduling-policy seed
    show-hidden-metrics-for-version sse-keep-alive-interval stream-interval tokenizer-mode
    tool-call-parser tool-strict-level ubatch-size uvicorn-log-level video-pruning-rate watermark
""")
# With several values.
LISTS: Final = _names("""
    allowed-media-domains collect-detailed-traces cudagraph-capture-sizes ignore-patterns
    kv-cache-dtype-skip-layers lora-target-modules
""")
# With one value of JSON, or by parts: --NAME.PART=VALUE.
CONFIGURATIONS: Final = _names("""
    attention-config default-chat-template-kwargs eplb-config hf-overrides kernel-config
    limit-mm-per-prompt media-io-kwargs mm-processor-kwargs override-generation-config quantization-config
    reasoning-config
""")
# Of a configuration whose other parts load functions by their names, and caches from folders.
PARTS: Final = _names("""
    compilation-config.compile-sizes compilation-config.cudagraph-mode compilation-config.mode
""")
_ALONE: Final = SWITCHES | {f"no-{name}" for name in SWITCHES}
_WITH_VALUE: Final = VALUES | LISTS | CONFIGURATIONS | PARTS
ALLOWED: Final = tuple(sorted(f"--{name}" for name in _ALONE | _WITH_VALUE))
WITH_PARTS: Final = tuple(sorted(f"--{name}" for name in CONFIGURATIONS))
# Typed since a later release: a resource that was stored before may go on saying them by an argument.
TYPED_LATER: Final = {"--max-num-seqs": "maxNumSeqs", "--gpu-memory-utilization": "gpuMemoryUtilization"}

NUMBER: Final = r"^-([0-9]+|[0-9]*\.[0-9]+)$"  # a value that looks like an option


def option(word: str) -> str:
    """Return the option that a word names, as vLLM reads it; "" for a value."""
    if not word.startswith("-") or matches(NUMBER, word):
        return ""
    return word.split("=", 1)[0].replace("_", "-")


def is_allowed(word: str) -> bool:
    """Return whether a word is a value, or an option on the list."""
    name = option(word)
    return not name or name in ALLOWED or name.split(".", 1)[0] in WITH_PARTS


def misplaced(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield index and fault of allowed words that vLLM would not understand, or take for the model's name."""
    room = 0  # values that the last option has room for
    for index, word in enumerate(words):
        name = option(word).removeprefix("--").split(".", 1)[0]
        if not name:
            if not room:
                yield index, "is neither an option nor the value of one"
            room -= 1
        elif option(word).removeprefix("--") in _ALONE:
            room = 0
            if "=" in word:
                yield index, f"--{name} takes no value"
        else:
            room = 0 if "=" in word else len(words) if name in LISTS else 1
            if room and (index + 1 == len(words) or option(words[index + 1])):
                yield index, f"--{name} needs a value"

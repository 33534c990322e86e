"""vLLM 0.32: what `spec.engine` may carry, and what else it knows, with the reason why that is not listed.

Listed is what is harmless by what vLLM says of it, or was run here. tests/contract compares with vLLM's own
parser and variables: each is here, or in what the schema refuses (api/engine_args.py, api/engine_env.py).
"""

from typing import Final

from guided_operator.policy.vocabulary import Vocabulary


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _variables(text: str) -> frozenset[str]:
    return frozenset(f"VLLM_{name}" for name in text.split())


VLLM_0_32: Final = Vocabulary(
    switches=_names("""
        allow-credentials allow-deprecated-quantization async-scheduling cohere-is-reasoning-model
        cudagraph-metrics disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce
        disable-fastapi-docs disable-hybrid-kv-cache-manager disable-nccl-for-dp-synchronization
        disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
        enable-batch-sharded-sampling enable-chunked-prefill enable-dbo enable-ep-weight-filter
        enable-eplb enable-expert-parallel enable-flash-late-interaction enable-flashinfer-autotune
        enable-force-include-usage enable-layerwise-nvtx-tracing enable-log-deltas
        enable-log-outputs enable-log-requests enable-logging-iteration-details enable-mfu-metrics
        enable-mixed-moe-lora-format enable-moe-shared-loras enable-per-request-metrics
        enable-prefix-caching enable-prompt-tokens-details enable-request-id-headers
        enable-scale-out enable-server-load-tracking enable-tokenizer-info-endpoint
        enable-tower-connector-lora enforce-eager exclude-tools-when-tool-choice-none
        fully-sharded-loras interleave-mm-strings jit-monitor-verbose kv-cache-metrics
        kv-sharing-fast-prefill language-model-only log-error-stack
        long-prefill-token-threshold-adaptive mm-device-do-normalize mm-encoder-only numa-bind
        return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling
        specialize-active-lora swa-bounded-replay use-fp64-gumbel use-replayssm use-tqdm-on-load
    """),
    values=_names("""
        all2all-backend allowed-headers allowed-methods allowed-origins
        anthropic-disabled-thinking-effort api-server-count attention-backend block-size
        chat-template chat-template-content-format cohere-format config-format
        cpu-distributed-timeout-seconds cpu-offload-gb dbo-decode-token-threshold
        dbo-prefill-token-threshold decode-context-parallel-size disable-access-log-for-endpoints
        distributed-timeout-seconds dp-sync-interval dtype expert-placement-strategy
        fingerprint-mode fingerprint-value gdn-prefill-backend generation-config
        h11-max-header-count h11-max-incomplete-event-size kda-decode-backend kda-prefill-backend
        kv-cache-dtype kv-cache-memory-bytes kv-cache-metrics-sample kv-offloading-size
        linear-backend load-format log-level logprobs-mode long-prefill-token-threshold lora-dtype
        mamba-backend mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype
        max-cudagraph-capture-size max-log-len max-logprobs max-lora-cls-labels max-num-active-seqs
        max-num-batched-tokens max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens
        max-parallel-loading-workers mm-encoder-attn-backend mm-encoder-tp-mode mm-hasher-algorithm
        mm-processor-cache-gb mm-processor-cache-type mm-shm-cache-max-object-size-mb model-impl
        moe-backend num-gpu-blocks-override optimization-level per-request-spec-decode-metrics
        performance-mode prefill-schedule-interval prefix-caching-hash-algo quantization
        reasoning-parser renderer-num-workers response-role safetensors-load-strategy
        safetensors-prefetch-num-threads scheduling-policy seed show-hidden-metrics-for-version
        sse-keep-alive-interval stream-interval tokenizer-mode tool-call-parser tool-strict-level
        ubatch-size uvicorn-log-level video-pruning-rate watermark
    """),
    lists=_names("""
        allowed-media-domains collect-detailed-traces cudagraph-capture-sizes ignore-patterns
        kv-cache-dtype-skip-layers lora-target-modules
    """),
    configurations=_names("""
        attention-config default-chat-template-kwargs eplb-config hf-overrides kernel-config
        limit-mm-per-prompt media-io-kwargs mm-processor-kwargs model-loader-extra-config
        override-generation-config quantization-config reasoning-config
    """),
    # Of a configuration whose other parts load functions by their names, and caches from folders.
    parts=_names("""
        compilation-config.compile-sizes compilation-config.cudagraph-mode compilation-config.mode
    """),
    unlisted={
        "it makes this pod talk to other pods and stores, which nothing here was run with": _names("""
            ec-manager-config ec-transfer-config engram-config kv-events-config
            kv-offloading-backend kv-transfer-config
        """),
        "it changes how ranks are spread or watched, which nothing here was run with": _names("""
            cp-kv-cache-interleave-size dcp-comm-backend dcp-kv-cache-interleave-size
            dcp-q-replicate enable-fault-tolerance enable-hc-sp enable-shm-tensor-arena
            fault-tolerance-config numa-bind-cpus numa-bind-nodes ray-workers-use-nsight
        """),
        "it is for a model that does not generate text, or has no tokenizer": _names("""
            convert diffusion-config pooler-config runner skip-tokenizer-init
        """),
        "what the sidecar reports of the engine would be missing": _names("""
            aggregate-engine-logging aux-output-config disable-log-stats enable-trace-replay
        """),
        "a pod that sleeps is not ready": _names("""
            enable-cumem-allocator enable-nccl-comm-suspend enable-sleep-mode
            sleep-mode-offload-cudagraph sleep-preserve-parameter-names
        """),
        "it changes or shows what is sampled beside the mask": _names("""
            enable-return-routed-experts return-sampling-mask watermark-config
        """),
        "nothing here was run with it": _names("""
            cpu-offload-params custom-histogram-buckets enable-mamba-cache-stochastic-rounding
            enable-mamba-shared-prefix-checkpoint enable-offline-docs fail-on-environ-validation
            ir-op-priority jit-monitor-mode mamba-cache-philox-rounds mamba-ssu-algorithm
            mm-encoder-attn-dtype mm-ipc-gpu-memory-gb mm-processor-device mm-tensor-ipc
            offload-backend offload-group-size offload-num-in-group offload-params
            offload-prefetch-step prefix-cache-retention-interval prefix-match-unit
            pt-load-map-location replayssm-buffer-len safetensors-prefetch-block-size
            sparse-indexer-topk-backend video-pruning-method
        """),
    },
    repositories={"generation-config": _names("auto vllm")},
    # --hf-overrides.text_model_id, .auto_map; code_revision of a processor's code; tensorizer_uri, pattern.
    with_repositories=_names("hf-overrides mm-processor-kwargs model-loader-extra-config"),
    variables=_variables("""
        ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
        ALLOW_LONG_MAX_MODEL_LEN ALLREDUCE_USE_FLASHINFER ALLREDUCE_USE_FLASHINFER_PCIE_IPC
        ALLREDUCE_USE_SYMM_MEM AUDIO_FETCH_TIMEOUT B12X_MOE_FP4_FORCE_A16 BATCH_INVARIANT
        BLOCKSCALE_FP8_GEMM_FLASHINFER CHAT_TEMPLATE_RENDER_TIMEOUT COMPILE_CACHE_SAVE_FORMAT
        COMPUTE_NANS_IN_LOGITS CPU_ATTN_SPLIT_KV CPU_CI_ENV CPU_INT4_W4A8 CPU_KVCACHE_SPACE
        CPU_NUM_OF_RESERVED_CPU CPU_OMP_THREADS_BIND DBO_COMM_SMS DCP_Q_REPLICATE DEBUG_MFU_METRICS
        DEBUG_WORKSPACE DEEPEPLL_NVFP4_DISPATCH DEEPEP_BUFFER_SIZE_MB
        DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE DEEPEP_LOW_LATENCY_USE_MNNVL
        DEEPEP_V2_ALLOW_HYBRID_MODE DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION DEEPEP_V2_PREFER_OVERLAP
        DEEP_GEMM_WARMUP DISABLED_KERNELS DISABLE_COMPILE_CACHE
        DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION DISABLE_LOG_LOGO DISABLE_PYNCCL
        DISABLE_SHARED_EXPERTS_STREAM DISTRIBUTED_USE_SPLIT_GROUP DO_NOT_TRACK ENABLE_COHERE_API
        ENABLE_CUDAGRAPH_GC ENABLE_FLA_PACKED_RECURRENT_DECODE ENABLE_GEMM_RS ENABLE_HPC_OPS
        ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING ENABLE_INDUCTOR_MAX_AUTOTUNE ENABLE_PREGRAD_PASSES
        ENABLE_RESPONSES_API_STORE ENFORCE_STRICT_TOOL_CALLING ENGINE_READY_TIMEOUT_S
        EXECUTE_MODEL_TIMEOUT_SECONDS FASTSAFETENSORS_QUEUE_SIZE FLASHINFER_ALLREDUCE_BACKEND
        FLASHINFER_AUTOTUNE_SKIP_OPS FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE
        FLASHINFER_WORKSPACE_BUFFER_SIZE FLOAT32_MATMUL_PRECISION GC_DEBUG GDN_DECODE_KERNEL
        GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS GPU_SYNC_CHECK HTTP_TIMEOUT_KEEP_ALIVE
        HUMMING_INPUT_QUANT_CONFIG HUMMING_MOE_GEMM_TYPE HUMMING_ONLINE_QUANT_CONFIG
        HUMMING_USE_F16_ACCUM IMAGE_FETCH_TIMEOUT KIMI_K3_AUX_ATTN_RES_STREAM KIMI_K3_GEMM_AR
        KIMI_K3_SHARD_SP_SHARED_EXPERT KV_CACHE_LAYOUT KV_EVENTS_USE_INT_BLOCK_HASHES
        KV_OFFLOAD_MAX_BATCH_DESCRIPTORS LOGGING_COLOR LOGGING_LEVEL LOGGING_PREFIX
        LOG_BATCHSIZE_INTERVAL LOG_MODEL_INSPECTION LOG_STATS_INTERVAL LORA_DISABLE_PDL
        LORA_ENABLE_DUAL_STREAM MARLIN_INPUT_DTYPE MARLIN_USE_ATOMIC_ADD MAX_AUDIO_CLIP_FILESIZE_MB
        MAX_AUDIO_DECODE_BYTES MAX_AUDIO_DECODE_DURATION_S MAX_AUDIO_PREPROCESS_WORKERS
        MAX_BAD_WORDS_TOTAL_TOKENS MAX_COMPLETION_PROMPTS MAX_EMBED_DECODE_BYTES MAX_IMAGE_PIXELS
        MAX_MEDIA_DOWNLOAD_SIZE_MB MAX_NUM_BAD_WORDS MAX_N_SEQUENCES MAX_STOP_STRINGS
        MAX_TOKENS_PER_EXPERT_FP4_MOE MEDIA_CACHE_MAX_SIZE_MB MEDIA_CACHE_TTL_HOURS
        MEDIA_FETCH_MAX_RETRIES MEDIA_LOADING_THREAD_COUNT MEDIA_URL_ALLOW_REDIRECTS
        MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS MLA_DISABLE MOE_SKIP_PADDING MOE_USE_DEEP_GEMM
        MQ_MAX_CHUNK_BYTES_MB MSGPACK_ZERO_COPY_THRESHOLD MULTI_STREAM_GEMM_TOKEN_THRESHOLD
        MXFP4_EMULATION_DEQUANT_AT_LOAD MXFP8_EMULATION_DEQUANT_AT_LOAD NO_USAGE_STATS
        P2P_HANDSHAKE_TIMEOUT_S P2P_IDLE_TIMEOUT_S P2P_MAX_PEERS PP_LAYER_PARTITION
        RANDOMIZE_DP_DUMMY_INPUTS REGEX_COMPILATION_TIMEOUT_S REPLICATE_EMBED
        RINGBUFFER_WARNING_INTERVAL ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS
        ROCM_AITER_MLA_ASM_PADDING ROCM_AITER_MLA_DCP_VERIFY ROCM_AITER_MOE_DISPATCH_POLICY
        ROCM_FP8_MFMA_PAGE_ATTN ROCM_FP8_PADDING ROCM_MOE_PADDING ROCM_MONO_DECODE
        ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16 ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB
        ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB ROCM_QUICK_REDUCE_QUANTIZATION
        ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB ROCM_SHUFFLE_KV_CACHE_LAYOUT
        ROCM_SLEEP_MEM_CHUNK_SIZE ROCM_USE_AITER ROCM_USE_AITER_CUSTOM_AR ROCM_USE_AITER_FP4BMM
        ROCM_USE_AITER_FP4_ASM_GEMM ROCM_USE_AITER_FP8BMM ROCM_USE_AITER_FUSION_SHARED_EXPERTS
        ROCM_USE_AITER_LINEAR ROCM_USE_AITER_LINEAR_HIPBMM ROCM_USE_AITER_MHA ROCM_USE_AITER_MLA
        ROCM_USE_AITER_MOE ROCM_USE_AITER_MOE_A4W4_DSV4 ROCM_USE_AITER_MOE_SITUV2
        ROCM_USE_AITER_RMSNORM ROCM_USE_AITER_TRITON_GEMM ROCM_USE_AITER_TRITON_ROPE
        ROCM_USE_AITER_TRITON_SPARSE_MLA ROCM_USE_AITER_UNIFIED_ATTENTION ROCM_USE_SKINNY_GEMM
        SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD SKIP_P2P_CHECK SPARSE_INDEXER_MAX_LOGITS_MB
        SSM_CONV_STATE_LAYOUT TOOL_JSON_ERROR_AUTOMATIC_RETRY TOOL_PARSE_REGEX_TIMEOUT_SECONDS
        TRITON_FORCE_FIRST_CONFIG TRITON_JIT_WARMUP_NUM_THREADS TRITON_USE_TD USE_AOT_COMPILE
        USE_BREAKABLE_CUDAGRAPH USE_BYTECODE_HOOK USE_DEEP_GEMM USE_DEEP_GEMM_E8M0
        USE_DEEP_GEMM_TMA_ALIGNED_SCALES USE_DIRECT_DCP_A2A USE_DIRECT_DCP_KV_GATHER
        USE_DIRECT_DCP_Q_GATHER USE_FASTOKENS USE_FLASHINFER_MOE_INT4 USE_FLASHINFER_SAMPLER
        USE_FUSED_MOE_GROUPED_TOPK USE_HW_AGNOSTIC USE_LAYERNAME USE_MEGA_AOT_ARTIFACT
        USE_NCCL_SYMM_MEM USE_OINK_OPS USE_SIMPLE_KV_OFFLOAD USE_SPINLOOP_EXT USE_STANDALONE_COMPILE
        USE_TRITON_AWQ USE_V2_MODEL_RUNNER V1_OUTPUT_PROC_CHUNK_SIZE V1_USE_OUTLINES_CACHE
        VIDEO_FETCH_TIMEOUT VIDEO_LOADER_BACKEND WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY
        WEIGHT_OFFLOADING_DISABLE_UVA WORKER_SHUTDOWN_TIMEOUT_SECONDS WSL2_ENABLE_PIN_MEMORY
        XGRAMMAR_CACHE_MB XPU_FORCE_N_CONTIG_WEIGHT XPU_INC_WNA16_BACKEND XPU_PP_MICROBATCH
        XPU_USE_SAMPLER_KERNEL ZENTORCH_WEIGHT_PREPACK
    """)
    | _names("""
        AWS_ACCESS_KEY_ID AWS_DEFAULT_REGION AWS_REGION AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
        CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
        FI_PROVIDER GLOO_SOCKET_IFNAME HF_HUB_DISABLE_PROGRESS_BARS HF_HUB_DISABLE_TELEMETRY
        HF_HUB_DISABLE_XET HF_HUB_DOWNLOAD_TIMEOUT HF_HUB_ENABLE_HF_TRANSFER HF_HUB_ETAG_TIMEOUT
        HF_HUB_VERBOSITY HF_XET_HIGH_PERFORMANCE KMP_BLOCKTIME LANG LC_ALL MKL_NUM_THREADS NCCL_ALGO
        NCCL_BUFFSIZE NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG NCCL_DEBUG_SUBSYS
        NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA
        NCCL_IB_PCI_RELAXED_ORDERING NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SL NCCL_IB_TC
        NCCL_IB_TIMEOUT NCCL_MAX_NCHANNELS NCCL_MIN_NCHANNELS NCCL_MNNVL_ENABLE NCCL_NET
        NCCL_NET_GDR_LEVEL NCCL_NET_PLUGIN NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL
        NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_FAMILY NCCL_SOCKET_IFNAME NCCL_TUNER_CONFIG_PATH
        NO_COLOR NVSHMEM_IB_GID_INDEX OMP_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
        TOKENIZERS_PARALLELISM TORCHDYNAMO_DISABLE TORCHINDUCTOR_COMPILE_THREADS TORCH_LOGS
        TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT TRANSFORMERS_VERBOSITY TZ
        UCX_NET_DEVICES UCX_TLS
    """),
    unlisted_variables={
        "it makes this pod talk to other pods and stores, which nothing here was run with": _variables("""
            EC_SIDE_CHANNEL_HOST EC_SIDE_CHANNEL_PORT GPU_NIC_PCIE_MAPPING
            MOONCAKE_ABORT_REQUEST_TIMEOUT MOONCAKE_BOOTSTRAP_PORT MOONCAKE_CONNECTOR_TIMEOUT
            MOONCAKE_DISK_STAGING_USABLE_RATIO MOONCAKE_LOAD_RECV_THREADS MOONCAKE_STORE_TIER_LOG
            NIC_SELECTION_VARS NIXL_SIDE_CHANNEL_HOST NIXL_SIDE_CHANNEL_PORT P2P_SIDE_CHANNEL_HOST
            P2P_SIDE_CHANNEL_PORT
        """),
        "it writes what people said into the log": _variables("""
            DEBUG_LOG_API_SERVER_RESPONSE
        """),
        "it is of vLLM's own build, tests or other platforms": _variables("""
            BUILD_COMMIT BUILD_PIPELINE BUILD_URL CUSTOM_SCOPES_FOR_PROFILING DOCKER_BUILD_CONTEXT
            HAS_FLASHINFER_CUBIN IMAGE_TAG MAIN_CUDA_VERSION MOE_ROUTING_SIMULATION_STRATEGY
            NVTX_SCOPES_FOR_PROFILING PATTERN_MATCH_DEBUG SKIP_PRECOMPILED_VERSION_SUFFIX
            SKIP_VERSION_SUFFIX TPU_USING_PATHWAYS USE_PRECOMPILED USE_PRECOMPILED_RUST
            XLA_CHECK_RECOMPILATION XLA_USE_SPMD
        """),
        "nothing here was run with it": _variables("""
            ENABLE_STARTUP_PLAN OBJECT_STORAGE_SHM_BUFFER_NAME PROCESS_NAME_PREFIX
            RAISE_ON_LOGIT_NANS SYSTEM_START_DATE USE_EXPERIMENTAL_PARSER_CONTEXT
        """),
    },
)

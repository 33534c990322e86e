"""Options and variables of vLLM that `spec.engine` may not carry, by the reason why.

A later vLLM's new ones belong to a list in the product, or to one here: a test in tests/contract says so.
"""

from typing import Final

LEFT_OUT: Final = {
    "a typed field, the launcher or the plugin owns it": """
        api-key code-revision config data-parallel-size device-memory-utilization enable-lora help
        hf-token host lora-modules max-cpu-loras max-lora-rank max-loras max-model-len middleware
        model otlp-traces-endpoint pipeline-parallel-size port revision served-model-name
        shutdown-timeout spec-method spec-model spec-tokens speculative-config
        structured-outputs-config tensor-parallel-size tokenizer tokenizer-revision trust-remote-code
        uds worker-cls
    """,
    "it loads code by name or path, or what may hold code": """
        additional-config compilation-config hf-config-path io-processor-plugin log-config-file
        logging-config logits-processors model-class-overrides model-loader-extra-config
        pt-load-map-location reasoning-parser-plugin scheduler-cls tool-parser-plugin
        worker-extension-cls
    """,
    "it reads or writes files, or asks servers, of the caller's choice": """
        allowed-local-media-path default-mm-loras download-dir mm-encoder-fp8-scale-path
        mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path profiler-config tool-server
    """,
    "it lets clients do what only the pod's owner should": """
        enable-mm-embeds enable-prompt-embeds enable-return-routed-experts return-sampling-mask
        trust-request-chat-template trust-request-mm-kwargs
    """,
    "another front end, which neither admission nor the probes see": """
        data-parallel-supervisor-port dp-supervisor-probe-failure-threshold
        dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s grpc grpc-port
        headless tokens-only
    """,
    "another scheme or path than Service and probes use": """
        enable-offline-docs enable-ssl-refresh root-path ssl-ca-certs ssl-cert-reqs ssl-certfile
        ssl-ciphers ssl-keyfile
    """,
    "ranks, nodes or executors that the pod does not wait for": """
        cp-kv-cache-interleave-size cpu-distributed-timeout-seconds data-parallel-address
        data-parallel-backend data-parallel-external-lb data-parallel-hybrid-lb
        data-parallel-multi-port-external-lb data-parallel-rank data-parallel-rpc-port
        data-parallel-size-local data-parallel-start-rank dcp-comm-backend
        dcp-kv-cache-interleave-size dcp-q-replicate decode-context-parallel-size device-ids
        distributed-executor-backend elastic-ep-max-dp-size enable-elastic-ep enable-fault-tolerance
        enable-hc-sp enable-shm-tensor-arena fault-tolerance-config master-addr master-port nnodes
        node-rank numa-bind-cpus numa-bind-nodes prefill-context-parallel-size ray-workers-use-nsight
    """,
    "other pods and stores, which this one does not reach": """
        ec-manager-config ec-transfer-config engram-config kv-events-config kv-offloading-backend
        kv-transfer-config weight-transfer-config
    """,
    "a model that does not generate text, or no tokenizer": """
        convert diffusion-config pooler-config runner skip-tokenizer-init
    """,
    "what the sidecar tells of the engine would be missing": """
        aggregate-engine-logging aux-output-config disable-log-stats enable-trace-replay
    """,
    "a pod that sleeps is not ready": """
        enable-cumem-allocator enable-nccl-comm-suspend enable-sleep-mode sleep-mode-offload-cudagraph
        sleep-preserve-parameter-names
    """,
    "it changes what is sampled beside the mask": """
        watermark-config
    """,
    "nobody has asked for it, and nothing here was run with it": """
        cpu-offload-params custom-histogram-buckets enable-mamba-cache-stochastic-rounding
        enable-mamba-shared-prefix-checkpoint fail-on-environ-validation ir-op-priority
        jit-monitor-mode mamba-cache-philox-rounds mamba-ssu-algorithm mm-encoder-attn-dtype
        mm-ipc-gpu-memory-gb mm-processor-device mm-tensor-ipc offload-backend offload-group-size
        offload-num-in-group offload-params offload-prefetch-step prefix-cache-retention-interval
        prefix-match-unit replayssm-buffer-len safetensors-prefetch-block-size
        sparse-indexer-topk-backend video-pruning-method
    """,
}
LEFT_OUT_VARIABLES: Final = {
    "a typed field, the launcher or the plugin owns it": """
        API_KEY ENABLE_V1_MULTIPROCESSING HOST_IP LOOPBACK_IP PLUGINS PORT RPC_BASE_PATH TARGET_DEVICE
        WORKER_MULTIPROC_METHOD
    """,
    "it loads code by name or path, or what may hold code": """
        CACHE_ROOT CONFIGURE_LOGGING CUDART_SO_PATH CUDA_COMPATIBILITY_PATH ENABLE_CUDA_COMPATIBILITY
        FLASHINFER_AUTOTUNE_CACHE_DIR FORCE_AOT_LOAD LOGGING_CONFIG_PATH MEDIA_CONNECTOR
        NCCL_INCLUDE_PATH NCCL_SO_PATH RUST_FRONTEND_PATH TUNED_CONFIG_FOLDER USE_RUST_BENCH
        USE_RUST_FRONTEND XLA_CACHE_PATH
    """,
    "another place that models come from": """
        LORA_RESOLVER_CACHE_DIR LORA_RESOLVER_HF_REPO_LIST MODEL_REDIRECT_PATH TEST_FORCE_LOAD_FORMAT
        USE_MODELSCOPE
    """,
    "it reads or writes files, or asks servers, of the caller's choice": """
        ASSETS_CACHE ASSETS_CACHE_MODEL_CLEAN CONFIG_ROOT DEBUG_DUMP_PATH
        GPT_OSS_SYSTEM_TOOL_MCP_LABELS MEDIA_CACHE TRACE_FUNCTION USAGE_SOURCE USAGE_STATS_SERVER
    """,
    "it lets clients do what only the pod's owner should": """
        ALLOW_INSECURE_SERIALIZATION ALLOW_RUNTIME_LORA_UPDATING DISABLE_REQUEST_ID_RANDOMIZATION
        SERVER_DEV_MODE SKIP_MODEL_NAME_VALIDATION
    """,
    "it writes what people said into the log": """
        DEBUG_LOG_API_SERVER_RESPONSE
    """,
    "ranks, nodes or executors that the pod does not wait for": """
        DP_MASTER_IP DP_MASTER_PORT DP_RANK DP_RANK_LOCAL DP_SIZE ELASTIC_EP_DRAIN_REQUESTS
        ELASTIC_EP_SCALE_UP_LAUNCH KEEP_ALIVE_ON_ENGINE_DEATH OBJECT_STORAGE_SHM_BUFFER_NAME
        RAY_BUNDLE_INDICES RAY_DP_PACK_STRATEGY RAY_DP_PLACEMENT_NODE_IPS RAY_EXTRA_ENV_VARS_TO_COPY
        RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY RAY_PER_WORKER_GPUS TPU_USING_PATHWAYS
        USE_RAY_COMPILED_DAG_CHANNEL_TYPE USE_RAY_COMPILED_DAG_OVERLAP_COMM
        USE_RAY_V2_EXECUTOR_BACKEND USE_RAY_WRAPPED_PP_COMM XLA_CHECK_RECOMPILATION XLA_USE_SPMD
    """,
    "other pods and stores, which this one does not reach": """
        EC_SIDE_CHANNEL_HOST EC_SIDE_CHANNEL_PORT GPU_NIC_PCIE_MAPPING MOONCAKE_ABORT_REQUEST_TIMEOUT
        MOONCAKE_BOOTSTRAP_PORT MOONCAKE_CONNECTOR_TIMEOUT MOONCAKE_DISK_STAGING_USABLE_RATIO
        MOONCAKE_LOAD_RECV_THREADS MOONCAKE_STORE_TIER_LOG NIC_SELECTION_VARS NIXL_SIDE_CHANNEL_HOST
        NIXL_SIDE_CHANNEL_PORT P2P_SIDE_CHANNEL_HOST P2P_SIDE_CHANNEL_PORT
    """,
    "of vLLM's own build and tests": """
        BUILD_COMMIT BUILD_PIPELINE BUILD_URL CUSTOM_SCOPES_FOR_PROFILING DOCKER_BUILD_CONTEXT
        HAS_FLASHINFER_CUBIN IMAGE_TAG MAIN_CUDA_VERSION MOE_ROUTING_SIMULATION_STRATEGY
        NVTX_SCOPES_FOR_PROFILING PATTERN_MATCH_DEBUG SKIP_PRECOMPILED_VERSION_SUFFIX
        SKIP_VERSION_SUFFIX USE_PRECOMPILED USE_PRECOMPILED_RUST
    """,
    "nobody has asked for it, and nothing here was run with it": """
        ENABLE_STARTUP_PLAN LOGGING_STREAM PROCESS_NAME_PREFIX RAISE_ON_LOGIT_NANS SYSTEM_START_DATE
        USE_EXPERIMENTAL_PARSER_CONTEXT
    """,
}

"""What no variable of `spec.engine.env` may be, whatever the version of vLLM: the schema refuses it.

Variables that the operator sets, and those that have the loader, Python or a library load other code, name
files and other sources of models, or hand the pod devices that the scheduler did not give it. What is known
to be harmless differs between versions, and stands in the operator (guided_operator.policy.arguments).
"""

from typing import Final

from guided_operator.api.rule import Rule, cel_list, cel_text, matches

OWN_PREFIX: Final = "APP_"  # for code of the user's own, a logits processor's for instance
OWN: Final = f"^{OWN_PREFIX}[A-Z0-9_]+$"
# By what way, and trusting whom, models are reached: the sidecar gets them as well, for the tokenizer.
_WAY_TO_THE_HUB: Final = """
    ALL_PROXY AWS_CA_BUNDLE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 CURL_CA_BUNDLE HTTPS_PROXY HTTP_PROXY
    NO_PROXY REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE all_proxy http_proxy https_proxy no_proxy
"""
WAY_TO_THE_HUB: Final = tuple(_WAY_TO_THE_HUB.split())
# How the pod tells of itself, for engine and sidecar. Where telemetry goes is `spec.telemetry`'s to say.
_TELEMETRY: Final = """
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE OTEL_BSP_SCHEDULE_DELAY OTEL_EXPORTER_OTLP_COMPRESSION
    OTEL_EXPORTER_OTLP_TIMEOUT OTEL_EXPORTER_OTLP_TRACES_COMPRESSION OTEL_EXPORTER_OTLP_TRACES_TIMEOUT
    OTEL_RESOURCE_ATTRIBUTES OTEL_SDK_DISABLED OTEL_SERVICE_NAME
"""
TELEMETRY: Final = tuple(_TELEMETRY.split())
# Names that end as those of code and files do, and are neither: a name of a library of the image, a table.
NO_LOADERS: Final = ("NCCL_NET_PLUGIN", "NCCL_TUNER_CONFIG_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE")
_TAKEN: Final = (*NO_LOADERS, *TELEMETRY)


def _one_of(names: str, *, prefix: str = "") -> str:
    return f"^{prefix}({'|'.join(names.split())})$"


# What to do instead, after "is set by the operator: ", for the names that a pattern matches.
OWNED: Final = {
    "set model.authSecretKeyRef": _one_of("HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN"),
    "set engine.apiKeySecretKeyRef": "^VLLM_API_KEY$",
    "set storage.hub for where downloads are kept, and have whoever runs the operator set pods.hubEndpoint "
    "for a mirror": (
        "^(HF_ENDPOINT|HF_HOME|HF_HUB_OFFLINE|HUGGINGFACE_CO_STAGING|TRANSFORMERS_OFFLINE|"
        "(HF|HUGGINGFACE|TRANSFORMERS)_.*CACHE)$"
    ),
    "set telemetry.otlp": "^OTEL_",
    "set parallelism; the scheduler gives the pod its devices": (
        "^(NVIDIA_.*|(CUDA|HIP|ROCR)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|CUDA_MPS_.*)$"
    ),
    "remove it": (
        "^(GUIDEDMODEL_.*|KUBERNETES_.*|HOME|USER|SHELL|TMPDIR|TEMP|TMP|VLLM_(ENABLE_V1_MULTIPROCESSING|"
        "HOST_IP|LOOPBACK_IP|PORT|RPC_BASE_PATH|TARGET_DEVICE|WORKER_MULTIPROC_METHOD|PLUGINS))$"
    ),
}
# Why it is not allowed, after "is not allowed: ", and what to do.
FORBIDDEN: Final = {
    "it has the loader, Python or a compiler run other code. Remove it; the engine runs the code of its "
    "image alone": (
        "^(LD_|DYLD_|PYTHON|BASH|ENV$|IFS$|PS4$|SHELLOPTS$|GLIBC_|GCONV_|MALLOC_|PERL|NODE_|RUST_|CC$|CXX$|"
        "NVCC|CUDAHOSTCXX|OPENSSL_|OMPI_|PMIX_|OPAL_|RAY_|NUMBA_|TRITON_|DG_JIT_|FLASHINFER_|CUDA_INJECTION|"
        "NVTX_INJECTION|TORCH_EXTENSIONS|TORCHINDUCTOR_CACHE|IBV_DRIVERS|RDMAV_DRIVERS)"
    ),
    "by its name it names code, a file or a folder. Remove it, or call it APP_... if your own code reads "
    "it": "(^|_)(PATHS?|HOME|DIRS?|DIRECTORY|ROOT|FOLDER|PRELOAD|PLUGINS?|LIB|LIBRARY|LIBRARIES|FILE|INIT)$",
    "it loads code by name or path, or what may hold code. Remove it; the engine runs the code of its image "
    "alone": _one_of(
        """
        ALLOW_INSECURE_SERIALIZATION CONFIGURE_LOGGING ENABLE_CUDA_COMPATIBILITY FORCE_AOT_LOAD
        LOGGING_STREAM MEDIA_CONNECTOR USE_RUST_BENCH USE_RUST_FRONTEND
        """,
        prefix="VLLM_",
    ),
    "it is another place that models come from. Remove it; set model.uri": _one_of(
        "LORA_RESOLVER_HF_REPO_LIST TEST_FORCE_LOAD_FORMAT USE_MODELSCOPE", prefix="VLLM_"
    ),
    "it reads or writes files, or asks servers, of your choice. Remove it": _one_of(
        """
        ASSETS_CACHE ASSETS_CACHE_MODEL_CLEAN GPT_OSS_SYSTEM_TOOL_MCP_LABELS MEDIA_CACHE TRACE_FUNCTION
        USAGE_SOURCE USAGE_STATS_SERVER
        """,
        prefix="VLLM_",
    ),
    "it lets clients choose what only the pod's owner should. Remove it": _one_of(
        """
        ALLOW_RUNTIME_LORA_UPDATING DISABLE_REQUEST_ID_RANDOMIZATION SERVER_DEV_MODE
        SKIP_MODEL_NAME_VALIDATION
        """,
        prefix="VLLM_",
    ),
    "it starts ranks that the pod does not wait for. Remove it; parallelism says how many there are": (
        "^VLLM_(DP_(MASTER|RANK|SIZE).*|ELASTIC_EP_.*|RAY_.*|USE_RAY_.*|KEEP_ALIVE_ON_ENGINE_DEATH)$"
    ),
}
_TABLES: Final = (("is set by the operator", OWNED), ("is not allowed", FORBIDDEN))
_ROWS: Final = tuple(
    (f"{head}: {what}", pattern) for head, table in _TABLES for what, pattern in table.items()
)


def refusal(name: str) -> str:
    """Return what is wrong with a variable by its name; "" for none of the above."""
    if name in _TAKEN or matches(OWN, name):
        return ""
    return next((f"{name} {told}" for told, pattern in _ROWS if matches(pattern, name)), "")


def _is_no_name(value: str | None) -> bool:
    return value is None or "/" in value


_ANY_OF: Final = "|".join(pattern for _, pattern in _ROWS)
_TOLD: Final = " : ".join(f"self.name.matches({cel_text(each)}) ? {cel_text(told)}" for told, each in _ROWS)

ENV_RULES: Final = (
    Rule(
        ("spec", "engine", "env", "*"),
        "name",
        "is set by the operator, or would have the pod break its contract; docs/arguments.md says what to "
        "do instead",
        f"self.name in {cel_list(_TAKEN)} || self.name.matches({cel_text(OWN)}) || "
        f"!self.name.matches({cel_text(_ANY_OF)})",
        lambda variable: bool(refusal(variable.name)),
        told=(f"self.name + ' ' + ({_TOLD} : '')", lambda variable: refusal(variable.name)),
    ),
    Rule(
        ("spec", "engine", "env", "*"),
        "value",
        "of NCCL_NET_PLUGIN must be the name of a library in the image, without a /, and no Secret's: NCCL "
        "would load a file as code",
        "self.name != 'NCCL_NET_PLUGIN' || (has(self.value) && !self.value.contains('/'))",
        lambda variable: variable.name == "NCCL_NET_PLUGIN" and _is_no_name(variable.value),
    ),
)

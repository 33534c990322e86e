"""Variables that no resource may set, whatever the version of vLLM.

Variables that the operator sets, and those that have the loader, Python or a library load other code, name
files and other sources of models, or hand the pod devices that the scheduler did not give it.
"""

import re
from typing import Final

from guided_operator.api.words import TELEMETRY

OWN: Final = "^APP_[A-Z0-9_]+$"  # for code of the user's own, a logits processor's for instance
# Names that end as those of code and files do, and are neither: a name of a library of the image, a table.
NO_LOADERS: Final = ("NCCL_NET_PLUGIN", "NCCL_TUNER_CONFIG_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE")
_TAKEN: Final = (*NO_LOADERS, *TELEMETRY)


def _one_of(names: str, *, prefix: str = "") -> str:
    return f"^{prefix}({'|'.join(names.split())})$"


# What to do instead, after "is set by the operator: ", for the names that a pattern matches.
OWNED: Final = {
    "set model.authSecretKeyRef": _one_of("HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN"),
    "set engine.apiKeySecretKeyRef": "^VLLM_API_KEY$",
    "set storage.hub for the place of downloads; for a mirror, ask whoever runs the operator to set "
    "pods.hubEndpoint": (
        "^(HF_ENDPOINT|HF_HOME|HF_HUB_OFFLINE|HUGGINGFACE_CO_STAGING|TRANSFORMERS_OFFLINE|"
        "(HF|HUGGINGFACE|TRANSFORMERS)_.*CACHE)$"
    ),
    "set telemetry.endpoint and telemetry.sampling": "^OTEL_",
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
    "it makes the loader, Python or a compiler run other code. Remove it": (
        "^(LD_|DYLD_|PYTHON|BASH|ENV$|IFS$|PS4$|SHELLOPTS$|GLIBC_|GCONV_|MALLOC_|PERL|NODE_|RUST_|CC$|CXX$|"
        "NVCC|CUDAHOSTCXX|OPENSSL_|OMPI_|PMIX_|OPAL_|RAY_|NUMBA_|TRITON_|DG_JIT_|FLASHINFER_|CUDA_INJECTION|"
        "NVTX_INJECTION|TORCH_EXTENSIONS|TORCHINDUCTOR_CACHE|IBV_DRIVERS|RDMAV_DRIVERS)"
    ),
    "its name suggests code, a file or a folder. Remove it, or rename it to APP_... for your own code": (
        "(^|_)(PATHS?|HOME|DIRS?|DIRECTORY|ROOT|FOLDER|PRELOAD|PLUGINS?|LIB|LIBRARY|LIBRARIES|FILE|INIT)$"
    ),
    "it loads code by name or path, and the engine runs only code of its image. Remove it": _one_of(
        """
        ALLOW_INSECURE_SERIALIZATION CONFIGURE_LOGGING ENABLE_CUDA_COMPATIBILITY FORCE_AOT_LOAD
        LOGGING_STREAM MEDIA_CONNECTOR USE_RUST_BENCH USE_RUST_FRONTEND
        """,
        prefix="VLLM_",
    ),
    "it loads models from elsewhere. Remove it, and set model.uri": _one_of(
        "LORA_RESOLVER_HF_REPO_LIST TEST_FORCE_LOAD_FORMAT USE_MODELSCOPE", prefix="VLLM_"
    ),
    "it names files or servers. Remove it": _one_of(
        """
        ASSETS_CACHE ASSETS_CACHE_MODEL_CLEAN GPT_OSS_SYSTEM_TOOL_MCP_LABELS MEDIA_CACHE TRACE_FUNCTION
        USAGE_SOURCE USAGE_STATS_SERVER
        """,
        prefix="VLLM_",
    ),
    "it gives clients rights of the model's owner. Remove it": _one_of(
        """
        ALLOW_RUNTIME_LORA_UPDATING DISABLE_REQUEST_ID_RANDOMIZATION SERVER_DEV_MODE
        SKIP_MODEL_NAME_VALIDATION
        """,
        prefix="VLLM_",
    ),
    "it changes the number of ranks. Remove it, and set parallelism": (
        "^VLLM_(DP_(MASTER|RANK|SIZE).*|ELASTIC_EP_.*|RAY_.*|USE_RAY_.*|KEEP_ALIVE_ON_ENGINE_DEATH)$"
    ),
}
_TABLES: Final = (("is set by the operator", OWNED), ("is not allowed", FORBIDDEN))
_ROWS: Final = tuple(
    (f"{head}: {what}", pattern) for head, table in _TABLES for what, pattern in table.items()
)


def refusal(name: str) -> str:
    """Return what is wrong with a variable by its name; "" for none of the above."""
    if name in _TAKEN or re.search(OWN, name):
        return ""
    return next((f"{name} {told}" for told, pattern in _ROWS if re.search(pattern, name)), "")

"""Arguments and variables of the engine that a user may not set: owned by typed fields, or served by nothing.

vLLM takes underscores for dashes, an option of JSON type by dotted parts, and some options by a short form.
tests/contract compares with vLLM's own parser.
"""

from typing import Final

# What typed fields, launcher and plugin set; with vLLM's short form.
OWNED_ARGS: Final = {
    "config": "",  # a file that could set all of these
    "data-parallel-size": "dp",
    "host": "",
    "max-model-len": "",
    "middleware": "",
    "model": "",
    "no-trust-remote-code": "",
    "otlp-traces-endpoint": "",
    "pipeline-parallel-size": "pp",
    "port": "",
    "revision": "",
    "served-model-name": "",
    "shutdown-timeout": "",
    "spec-method": "",
    "spec-model": "",
    "spec-tokens": "",
    "speculative-config": "sc",
    "structured-outputs-config": "",
    "tensor-parallel-size": "tp",
    "tokenizer": "",
    "tokenizer-revision": "",
    "trust-remote-code": "",
    "uds": "",
    "worker-cls": "",
}
# What the pod as it is made today cannot serve: more ranks or nodes than it waits for, an API that its own
# probe could not reach.
UNSUPPORTED_ARGS: Final = {
    "api-key": "",
    "decode-context-parallel-size": "dcp",
    "distributed-executor-backend": "",
    "grpc": "",
    "headless": "",
    "nnodes": "n",
    "prefill-context-parallel-size": "pcp",
    "ssl-certfile": "",
    "ssl-keyfile": "",
}


def _pattern(arguments: dict[str, str]) -> str:
    long = "|".join(name.replace("-", "[-_]") for name in arguments)
    # Behind a short form of one letter the value may follow at once, as in -n2.
    short = "".join(f"|-{name}" + "[0-9]*" * (len(name) == 1) for name in arguments.values() if name)
    return f"^(--({long}){short})([=.].*)?$"


OWNED: Final = _pattern(OWNED_ARGS)
UNSUPPORTED: Final = _pattern(UNSUPPORTED_ARGS)
# Without `speculative` nothing typed says whether scheduling is asynchronous, so an argument may.
OWNED_WITH_SPECULATIVE: Final = "^--(no[-_])?async[-_]scheduling$"
OWNED_ENV: Final = "^(GUIDEDMODEL_.*|OTEL_EXPORTER_OTLP_TRACES_PROTOCOL)$"
UNSUPPORTED_ENV: Final = "^VLLM_API_KEY$"  # as --api-key

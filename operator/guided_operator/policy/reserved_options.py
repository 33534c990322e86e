"""Options of vLLM that no resource may carry, whatever the version of vLLM.

Options that the operator sets from fields, and options by which a pod would not keep to its contract: they
load code, open ports, read files of the caller's choice. vLLM's parser takes a unique beginning for the
option: what begins a name here is refused as the name is.
"""

from typing import Final

from guided_operator.api.words import option, switch


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What to do instead, after "is set by the operator: ".
OWNED: Final = {
    "set model.uri": _names("model tokenizer"),
    "set model.revision": _names("revision tokenizer-revision code-revision"),
    "set model.servedName": _names("served-model-name"),
    "set model.trustRemoteCode": _names("trust-remote-code"),
    "set model.authSecretKeyRef": _names("hf-token"),
    "set engine.apiKeySecretKeyRef": _names("api-key"),
    "set parallelism.tensor": _names("tensor-parallel-size"),
    "set parallelism.pipeline": _names("pipeline-parallel-size"),
    "set parallelism.data": _names("""
        data-parallel-size data-parallel-address data-parallel-backend data-parallel-external-lb
        data-parallel-hybrid-lb data-parallel-multi-port-external-lb data-parallel-rank
        data-parallel-rpc-port data-parallel-size-local data-parallel-start-rank
    """),
    "set parallelism.nodes": _names("master-addr master-port nnodes node-rank headless"),
    "set speculative": _names("speculative-config spec-method spec-model spec-tokens"),
    "set lora": _names("enable-lora lora-modules default-mm-loras"),
    "set guidedDecoding": _names("structured-outputs-config"),
    "set logitsProcessors": _names("logits-processors"),
    "set telemetry.endpoint": _names("otlp-traces-endpoint"),
    "set drain.timeout": _names("shutdown-timeout"),
    "set storage.hub": _names("download-dir"),
    "remove it; each option in it can be a word of engine.args": _names("config"),
    "remove it; Service, probes and admission rely on it": _names("host port uds middleware"),
    "remove it; the ranks run the plugin's worker": _names("worker-cls distributed-executor-backend"),
}
# Why it is not allowed, after "is not allowed: ", and what to do.
FORBIDDEN: Final = {
    "it loads code by name or path, and the engine runs only code of its image. Remove it": _names("""
        additional-config compilation-config hf-config-path io-processor-plugin log-config-file
        logging-config model-class-overrides reasoning-parser-plugin scheduler-cls tool-parser-plugin
        worker-extension-cls
    """),
    "it names files or servers. Remove it": _names("""
        allowed-local-media-path mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin
        mm-encoder-fp8-scale-save-path profiler-config tool-server watchdog-config
    """),
    "it replaces weights while they are served. Remove it, and change spec.model instead": _names(
        "weight-transfer-config"
    ),
    "it gives clients rights of the model's owner. Remove it": _names("""
        enable-mm-embeds enable-prompt-embeds trust-request-chat-template trust-request-mm-kwargs
    """),
    "it changes how the server listens, which admission and probes rely on. Remove it; for TLS, use a "
    "gateway": _names("""
        data-parallel-supervisor-port dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
        dp-supervisor-probe-timeout-s enable-ssl-refresh grpc grpc-port help root-path ssl-ca-certs
        ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile tokens-only
    """),
    "it changes the number of ranks, or their devices. Remove it, and set parallelism": _names("""
        device-ids elastic-ep-max-dp-size enable-elastic-ep prefill-context-parallel-size
    """),
}
_TABLES: Final = {"is set by the operator": OWNED, "is not allowed": FORBIDDEN}
REFUSED: Final = {
    name: f"{head}: {what}"
    for head, table in _TABLES.items()
    for what, names in table.items()
    for name in names
}
# Full names that nothing above is meant by, though they begin one of it, or are a part of it.
EXCEPTED: Final = (
    "--reasoning-parser",
    "--compilation-config.compile-sizes",
    "--compilation-config.cudagraph-mode",
    "--compilation-config.mode",
)


def refusal(word: str) -> str:
    """Return what is wrong with the option that vLLM could read a word as; "" for none of the above."""
    given = option(word)
    if not given.startswith("--") or given in EXCEPTED:
        return ""
    base = switch(given.split(".", 1)[0])
    whole = REFUSED.get(base.removeprefix("--"))
    meant = (told for name, told in REFUSED.items() if f"--{name}".startswith(base))
    told = whole or next(meant, "")
    return told and f"{word.split('=', 1)[0]} {told}"

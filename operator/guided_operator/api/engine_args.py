"""What no word of `spec.engine.args` may be, whatever the version of vLLM: the schema refuses it.

Options that the operator sets from fields, and options by which a pod would not keep to its contract: they
load code, open ports, read files of the caller's choice. What is known to be harmless differs between vLLM's
versions, and stands in the operator (guided_operator.policy.arguments).

vLLM's parser takes a unique beginning for the option: what begins a name here is refused as the name is.
"""

from collections.abc import Iterable
from typing import Final

from guided_operator.api.rule import Rule, cel_list, cel_text, matches


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
    "set engine.maxModelLen": _names("max-model-len"),
    "set engine.maxNumSeqs": _names("max-num-seqs"),
    "set engine.gpuMemoryUtilization": _names("gpu-memory-utilization device-memory-utilization"),
    "set parallelism.tensor": _names("tensor-parallel-size"),
    "set parallelism.pipeline": _names("pipeline-parallel-size"),
    "set parallelism.data": _names("""
        data-parallel-size data-parallel-address data-parallel-backend data-parallel-external-lb
        data-parallel-hybrid-lb data-parallel-multi-port-external-lb data-parallel-rank
        data-parallel-rpc-port data-parallel-size-local data-parallel-start-rank
    """),
    "set parallelism.nodes": _names("master-addr master-port nnodes node-rank headless"),
    "set speculative": _names("speculative-config spec-method spec-model spec-tokens"),
    "set lora": _names("enable-lora lora-modules max-cpu-loras max-lora-rank max-loras default-mm-loras"),
    "set guidedDecoding": _names("structured-outputs-config"),
    "set logitsProcessors": _names("logits-processors"),
    "set telemetry.otlp": _names("otlp-traces-endpoint"),
    "set drain.timeout": _names("shutdown-timeout"),
    "set storage.hub": _names("download-dir"),
    "remove it; each option in it can be a word of engine.args": _names("config"),
    "remove it; Service, probes and admission rely on it": _names("host port uds middleware"),
    "remove it; the ranks run the plugin's worker": _names("worker-cls distributed-executor-backend"),
}
# Why it is not allowed, after "is not allowed: ", and what to do.
FORBIDDEN: Final = {
    "it loads code by name or path. Remove it; the engine runs the code of its image alone": _names("""
        additional-config compilation-config hf-config-path io-processor-plugin log-config-file
        logging-config model-class-overrides reasoning-parser-plugin scheduler-cls tool-parser-plugin
        worker-extension-cls
    """),
    "it reads or writes files, or asks servers, of your choice. Remove it": _names("""
        allowed-local-media-path mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin
        mm-encoder-fp8-scale-save-path profiler-config tool-server
    """),
    "it replaces weights while they are served. Remove it; change model, and the pods follow": _names(
        "weight-transfer-config"
    ),
    "it lets clients choose what only the pod's owner should. Remove it": _names("""
        enable-mm-embeds enable-prompt-embeds trust-request-chat-template trust-request-mm-kwargs
    """),
    "it starts another front end, or one at another path, which admission and probes do not see. Remove it; "
    "for TLS, put a gateway in front": _names("""
        data-parallel-supervisor-port dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
        dp-supervisor-probe-timeout-s enable-ssl-refresh grpc grpc-port help root-path ssl-ca-certs
        ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile tokens-only
    """),
    "it starts ranks that the pod does not wait for, or puts them on other devices. Remove it; parallelism "
    "says how many there are": _names("""
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
NUMBER: Final = r"^-([0-9]+|[0-9]*\.[0-9]+)$"  # a value that looks like an option
_FULL: Final = r"^--[a-zA-Z0-9][a-zA-Z0-9_-]*(\.[^=]*)?(=.*)?$"
# An option in CEL, as vLLM reads it, without its parts and the no- that denies.
_BASE: Final = "self.replace('_', '-').split('=')[0].split('.')[0].replace('--no-', '--')"


def option(word: str) -> str:
    """Return the option that a word names, as vLLM reads it; "" for a value."""
    if not word.startswith("-") or matches(NUMBER, word):
        return ""
    return word.split("=", 1)[0].replace("_", "-")


def refusal(word: str) -> str:
    """Return what is wrong with the option that vLLM could read a word as; "" for none of the above."""
    return next(filter(None, (_refusal(word, head) for head in _TABLES)), "")


def _refusal(word: str, head: str) -> str:
    given = option(word)
    if not given.startswith("--") or given in _excepted(head):
        return ""
    base = given.split(".", 1)[0].replace("--no-", "--")
    for what, names in _TABLES[head].items():
        if any(f"--{name}".startswith(base) for name in names):
            return f"{word.split('=', 1)[0]} {head}: {what}"
    return ""


def _excepted(head: str) -> tuple[str, ...]:
    """Return names that are not meant, among them other rules' that begin one of these."""
    own = [name for names in _TABLES[head].values() for name in names]
    others = {name for name in REFUSED if name not in own and any(each.startswith(name) for each in own)}
    return (*EXCEPTED, *sorted(f"--{name}" for name in others))


def _among(names: Iterable[str]) -> str:
    """Return, in CEL, whether an option is one of these, or begins one: of one text, that costs the least."""
    return f"{cel_text(''.join(f' --{name}' for name in sorted(names)))}.contains(' ' + {_BASE})"


def _rule(head: str) -> Rule:
    table = _TABLES[head]
    told = " : ".join(f"{_among(names)} ? {cel_text(what)}" for what, names in table.items())
    return Rule(
        ("spec", "engine", "args", "*"),
        "",
        f"{head}; docs/arguments.md says why, and what to do instead",
        f"!self.startsWith('--') || self.replace('_', '-').split('=')[0] in {cel_list(_excepted(head))} || "
        f"!{_among(name for names in table.values() for name in names)}",
        lambda word: bool(_refusal(word, head)),
        told=(
            f"self.split('=')[0] + {cel_text(f' {head}: ')} + ({told} : '')",
            lambda word: _refusal(word, head),
        ),
    )


ARGS_RULES: Final = (
    Rule(
        ("spec", "engine", "args", "*"),
        "",
        "write the option with its full name, as --NAME or --NAME=VALUE",
        f"!self.startsWith('-') || self.matches({cel_text(NUMBER)}) || self.matches({cel_text(_FULL)})",
        lambda word: word.startswith("-") and not matches(NUMBER, word) and not matches(_FULL, word),
    ),
    *map(_rule, _TABLES),
)

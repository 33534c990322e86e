"""What engine.args and engine.env may carry: what is reserved, what an installation denies, and why."""

import re
from typing import Any

import pytest

from guided_operator.api.crd import schema_of
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.policy import reserved_options, reserved_variables
from guided_operator.policy.arguments import ArgumentLimits
from guided_operator.policy.installation_limits import Limits
from guided_operator.policy.spec_checks import check
from support.manifests import guided_model

DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
SECRET = {"secretKeyRef": {"name": "secret", "key": "key"}}
# Why each is refused.
ARGUMENTS = {
    "--model=x": "--model is set by the operator: set model.uri",
    "--tensor_parallel_size=4": "--tensor_parallel_size is set by the operator: set parallelism.tensor",
    "--tensor-par=4": "--tensor-par is set by the operator: set parallelism.tensor",
    "--speculative-config.method=x": "--speculative-config.method is set by the operator: set speculative",
    "--no-enable-lora": "--no-enable-lora is set by the operator: set lora",
    "--api-key=secret": "--api-key is set by the operator: set engine.apiKeySecretKeyRef",
    "--worker-cls=x.Y": "--worker-cls is set by the operator: remove it",
    "--middleware=x.Y": "--middleware is set by the operator: remove it; Service, probes and admission",
    "--headless": "--headless is set by the operator: set parallelism.nodes",
    "--config=/x": "--config is set by the operator: remove it; each option in it",
    "--scheduler-cls=x.Y": "--scheduler-cls is not allowed: it loads code by name or path, and",
    "--worker-ext=x.Y": "--worker-ext is not allowed: it loads code by name or path, and",
    "--compilation-config={}": "--compilation-config is not allowed: it loads code",
    "--compilation-config.cache_dir=/x": "--compilation-config.cache_dir is not allowed: it loads code",
    "--reasoning-parser-p=/x": "--reasoning-parser-p is not allowed: it loads code",
    "--download-dir=/x": "--download-dir is set by the operator: set storage.hub",
    "--tool-server=x": "--tool-server is not allowed: it names files or servers",
    "--enable-prompt-embeds": "--enable-prompt-embeds is not allowed: it gives clients rights",
    "--grpc": "--grpc is not allowed: it starts another server",
    "--ssl-keyfile=/x": "for TLS, use a gateway",
    "--device-ids=1": "--device-ids is not allowed: it changes the number of ranks",
    **dict.fromkeys(
        ("-tp=2", "-n2", "-O3", "--", "-", "---seed=1", "--config /x", "--hf overrides=1"),
        "spec.engine.args[1]: ",
    ),
}
VARIABLES = {
    "HF_TOKEN": "HF_TOKEN is set by the operator: set model.authSecretKeyRef",
    "VLLM_API_KEY": "VLLM_API_KEY is set by the operator: set engine.apiKeySecretKeyRef",
    "HF_ENDPOINT": "HF_ENDPOINT is set by the operator: set storage.hub",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "is set by the operator: set telemetry.endpoint",
    "NVIDIA_VISIBLE_DEVICES": "the scheduler gives the pod its devices",
    "CUDA_VISIBLE_DEVICES": "the scheduler gives the pod its devices",
    **dict.fromkeys(("GUIDEDMODEL_CONFIG", "HOME", "VLLM_PLUGINS"), "is set by the operator: remove it"),
    **dict.fromkeys(
        ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "CUDA_INJECTION64_PATH", "CC"),
        "is not allowed: it makes the loader, Python or a compiler run other code",
    ),
    **dict.fromkeys(
        ("PATH", "NCCL_TUNER_PLUGIN", "AWS_CONFIG_FILE", "FI_PROVIDER_PATH", "VLLM_MODEL_REDIRECT_PATH"),
        "is not allowed: its name is that of code, a file or a folder",
    ),
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "is not allowed: it loads code",
    "VLLM_USE_MODELSCOPE": "is not allowed: it loads models from elsewhere",
    "VLLM_SERVER_DEV_MODE": "is not allowed: it gives clients rights",
    "VLLM_DP_RANK": "is not allowed: it changes the number of ranks",
}


def said(**fields: Any) -> list[str]:
    return [str(problem) for problem in check(guided_model(**fields))]


def denied(limits: ArgumentLimits, *words: str, env: tuple[str, ...] = ()) -> list[str]:
    variables = [{"name": name, "value": "1"} for name in env]
    gm = guided_model(engine__args=[*words], engine__env=variables)
    assert check(gm) == []
    return [problem.field for problem in Limits(arguments=limits).check(gm)]


@pytest.mark.parametrize("word", ARGUMENTS)
def test_an_option_is_refused_with_its_reason(word: str) -> None:
    [problem] = said(engine__args=["--seed=7", word])
    assert problem.startswith("spec.engine.args[1]: ")
    assert ARGUMENTS[word] in problem


@pytest.mark.parametrize("name", sorted(reserved_options.REFUSED))
def test_every_reserved_option_is_refused_in_all_of_its_forms(name: str) -> None:
    told = reserved_options.REFUSED[name]
    for word in (f"--{name}", f"--{name.replace('-', '_')}=secret", f"--no-{name}", f"--{name}.part=1"):
        spoken = word.split("=", 1)[0]
        [problem] = said(engine__args=["--seed=1", word])
        assert problem == f"spec.engine.args[1]: {spoken} {told}"


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_is_refused_with_its_reason(name: str) -> None:
    [problem] = said(engine__env=[{"name": "TZ", "value": "UTC"}, {"name": name, "value": "x"}])
    assert problem.startswith(f"spec.engine.env[1].name: {name} ")
    assert VARIABLES[name] in problem


TOLD = " ".join((*reserved_options.OWNED, *reserved_variables.OWNED, *reserved_variables.FORBIDDEN))
FIELDS = set(re.findall(r"\bset ([a-z]\w*(?:\.\w+)*)", TOLD)) - {"pods.hubEndpoint"}  # the chart's


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_fields_that_refusals_name_are_there(field: str) -> None:
    schema: Any = schema_of(GuidedModelSpec)
    for part in field.split("."):
        schema = schema["properties"][part]


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "7", "--max-logprobs=4", "--model_impl=auto", "--enforce-eager"],
        ["--reasoning-parser=qwen3", "--numa-bind", "--no-enable-prefix-caching"],
        ["--compilation-config.cudagraph_mode=NONE", "--hf-overrides.rope_theta", "1e6"],
        ["--long_prefill_token_threshold", "-1", "--seed", "-.5"],
        ["--cudagraph-capture-sizes", "1", "2", "4", "--async-scheduling"],
        ["--kv-transfer-config={}", "--disable-log-stats", "--of-vllm-9=1", "--Seed=1"],
    ],
    ids=" ".join,
)
def test_all_else_is_vllms_to_judge(words: list[str]) -> None:
    assert said(engine__args=words) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("APP_PATH", "/mnt/x"), ("OF_VLLM_9", "1"), ("VLLM_CPU_KVCACHE_SPACE", "2"), ("ZZZ", "1")),
        *(("NCCL_NET_PLUGIN", "aws-ofi"), ("NCCL_TUNER_CONFIG_PATH", "/mnt/t"), ("AWS_REGION", "x")),
        *(("OTEL_SERVICE_NAME", "x"), ("SSL_CERT_FILE", "/mnt/ca.pem"), ("VLLM_NIXL_SIDE_CHANNEL_PORT", "1")),
    ],
)
def test_all_other_variables_are_free(name: str, value: str) -> None:
    assert said(engine__env=[{"name": name, "value": value}]) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"engine__args": ["evil/model"]}, "spec.engine.args[0]: must be an option"),
        (
            {"engine__args": ["--no-async-scheduling"], "speculative": DRAFT},
            "spec.engine.args[0]: is set by speculative.asyncScheduling",
        ),
        (
            {"engine__env": [{"name": "NCCL_NET_PLUGIN", "value": "/mnt/x/evil.so"}]},
            "spec.engine.env[0].value: of NCCL_NET_PLUGIN must be the name of a library in the image",
        ),
        (
            {"engine__env": [{"name": "NCCL_NET_PLUGIN", "valueFrom": SECRET}]},
            "spec.engine.env[0].value: of NCCL_NET_PLUGIN must be the name of a library in the image",
        ),
    ],
)
def test_what_depends_on_more_than_the_name(fields: dict[str, Any], expected: str) -> None:
    [problem] = said(**fields)
    assert problem.startswith(expected)


WORDS = ("--kv-transfer-config", "{}", "--no-enable-prefix-caching", "--hf-overrides.a=1")


def test_without_limits_an_installation_denies_nothing() -> None:
    assert denied(ArgumentLimits(), *WORDS, env=("NCCL_DEBUG",)) == []


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (("--kv-*", "--enable-prefix-caching", "--hf-overrides", "NCCL_*"), (), []),
        (("--kv-*",), (), ["spec.engine.args[2]", "spec.engine.args[3]", "spec.engine.env[0].name"]),
        ((), ("--kv-*", "--hf-overrides"), ["spec.engine.args[0]", "spec.engine.args[3]"]),
        (("*",), ("NCCL_DEBUG",), ["spec.engine.env[0].name"]),
        (("--*", "NCCL_DEBUG"), ("--enable-prefix-caching",), ["spec.engine.args[2]"]),
    ],
)
def test_an_installation_allows_and_denies_names(
    allow: tuple[str, ...], deny: tuple[str, ...], expected: list[str]
) -> None:
    assert denied(ArgumentLimits(allow, deny), *WORDS, env=("NCCL_DEBUG",)) == expected


@pytest.mark.parametrize("word", ["--kv-tr={}", "--kv_transfer_con.kv_role=x", "--no-kv-transfer-config"])
def test_what_vllm_would_complete_to_a_denied_option_is_denied(word: str) -> None:
    assert denied(ArgumentLimits(deny=("--kv-transfer-config",)), word) == ["spec.engine.args[0]"]


def test_a_denial_says_what_is_allowed_and_whom_to_ask() -> None:
    limits = Limits(arguments=ArgumentLimits(("--max-*",), ("--max-lora-*",)))
    [problem] = limits.check(guided_model(engine__args=["--runner=generate"]))
    assert problem.message == (
        "--runner is not allowed by this operator, which allows --max-* but --max-lora-*: remove it, or ask "
        "whoever runs the operator to change limits.arguments"
    )


@pytest.mark.parametrize(
    "word",
    [
        "--generation-config=evil/repo",
        "--generation-c=evil/repo",
        "--hf-over.text_model_id=evil/repo",
        '--model-loader-extra-config={"tensorizer_uri": "s3://evil/x"}',
    ],
)
def test_limits_of_models_hold_for_arguments_and_their_beginnings(word: str) -> None:
    gm = guided_model(model__uri="hf://good-org/model", engine__args=[word])
    [problem] = Limits(models=("hf://good-org",)).check(gm)
    assert "this operator allows only models from hf://good-org" in problem.message

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
# Why each is refused; every reserved option is asked for in tests/contract/test_operator_arguments.py.
ARGUMENTS = {
    "--tensor_parallel_size=4": "--tensor_parallel_size is set by the operator: set parallelism.tensor",
    "--tensor-par=4": "--tensor-par is set by the operator: set parallelism.tensor",
    "--speculative-config.method=x": "--speculative-config.method is set by the operator: set speculative",
    "--no-enable-lora": "--no-enable-lora is set by the operator: set lora",
    "--disable-lora": "--disable-lora is set by the operator: set lora",
    "--worker-ext=x.Y": "--worker-ext is not allowed: it loads code by name or path, and",
    "--compilation-config.cache_dir=/x": "--compilation-config.cache_dir is not allowed: it loads code",
    "--reasoning-parser-p=/x": "--reasoning-parser-p is not allowed: it loads code",
    **dict.fromkeys(
        ("-tp=2", "-n2", "--", "-", "---seed=1", "--config /x", "--hf overrides=1"), "spec.engine.args[1]: "
    ),
}
VARIABLES = {
    "HF_TOKEN": "HF_TOKEN is set by the operator: set model.authSecretKeyRef",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "is set by the operator: set telemetry.endpoint",
    **dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "the scheduler gives the pod its"),
    **dict.fromkeys(("GUIDEDMODEL_CONFIG", "HOME", "VLLM_PLUGINS"), "is set by the operator: remove it"),
    **dict.fromkeys(
        ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "CUDA_INJECTION64_PATH", "CC"),
        "is not allowed: it makes the loader, Python or a compiler run other code",
    ),
    **dict.fromkeys(
        ("PATH", "NCCL_TUNER_PLUGIN", "AWS_CONFIG_FILE", "VLLM_MODEL_REDIRECT_PATH"),
        "is not allowed: its name suggests code, a file or a folder",
    ),
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "is not allowed: it loads code",
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
        ["--seed", "7", "--max-logprobs=4", "--model_impl=auto", "--enforce-eager", "--numa-bind"],
        ["--compilation-config.cudagraph_mode=NONE", "--hf-overrides.rope_theta", "1e6"],
        ["--long_prefill_token_threshold", "-1", "--seed", "-.5", "--async-scheduling"],
        ["--cudagraph-capture-sizes", "1", "2", "4", "--reasoning-parser=qwen3"],
        ["--kv-transfer-config={}", "--no-enable-prefix-caching", "--of-vllm-9=1", "--Seed=1"],
        ["--allowed-media-domains", "a.example/b"],  # the owner's to limit
    ],
    ids=" ".join,
)
def test_all_else_is_vllms_to_judge(words: list[str]) -> None:
    assert said(engine__args=words) == []


def test_all_other_variables_are_free() -> None:
    free = {"APP_PATH": "/mnt/x", "OF_VLLM_9": "1", "NCCL_NET_PLUGIN": "aws-ofi", "AWS_REGION": "x"}
    free |= {"OTEL_SERVICE_NAME": "x", "SSL_CERT_FILE": "/mnt/ca.pem", "VLLM_NIXL_SIDE_CHANNEL_PORT": "1"}
    assert said(engine__env=[{"name": name, "value": value} for name, value in free.items()]) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"engine__args": ["evil/model"]}, "spec.engine.args[0]: must be an option"),
        *(
            (
                {"engine__args": [word], "speculative": DRAFT},
                "spec.engine.args[0]: is set by speculative.asyncScheduling",
            )
            for word in ("--no-async-scheduling", "--async_sched", "--no-as")
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


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        ((), (), []),
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

"""What a GuidedModel becomes: the pod, its arguments, environment and configuration."""

import json
from typing import Any

import pytest

from guided_contract import config
from guided_operator.api import GuidedModel
from guided_operator.builders.children import url
from guided_operator.builders.configuration import config_file
from guided_operator.builders.objects import selector
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.manifests import SITE, children_of, environment, guided_model
from support.manifests import pod_of as pod

Object = dict[str, Any]


def engine(gm: GuidedModel, site: Site = SITE) -> dict[str, Any]:
    container: dict[str, Any] = pod(gm, site)["containers"][0]
    return container


def option(container: dict[str, Any], name: str) -> str:
    value: str = container["args"][container["args"].index(name) + 1]
    return value


def pod_config(gm: GuidedModel, site: Site = SITE) -> config.PodConfig:
    (text,) = config_file(gm, site).values()
    return config.decode(text.encode())


def test_the_engine_is_vllm_under_the_launcher_with_the_users_words_last() -> None:
    env = [{"name": "VLLM_NO_USAGE_STATS", "value": "0"}]
    container = engine(guided_model(engine__args=["--seed=4"], model__trustRemoteCode=True, engine__env=env))
    assert container["command"] == ["python3", "-m", "guided_engine.launcher", "--"]
    assert container["args"] == [
        *("--model", "/models/models/tiny"),
        *("--served-model-name", "tiny"),
        *("--host", "0.0.0.0"),
        *("--port", "8000"),
        *("--tensor-parallel-size", "1"),
        *("--trust-remote-code", "--seed=4"),
    ]
    variables = environment(container)
    assert variables["VLLM_NO_USAGE_STATS"] == "0"
    assert int(variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 60, "longer than clients and gateways keep them"


def test_a_model_is_downloaded_once_or_read_from_a_claim_or_the_image() -> None:
    draft = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
    hub = guided_model(model={"uri": "hf://org/name", "revision": "abc"})
    claim, image = guided_model(speculative=draft), guided_model(model__uri="file:///weights/m/")

    downloads = engine(hub)
    assert option(downloads, "--model") == "org/name"
    assert option(downloads, "--revision") == option(downloads, "--tokenizer-revision") == "abc"
    assert environment(downloads)["HF_HOME"] == "/hub"
    assert "HF_HUB_OFFLINE" not in environment(downloads)
    for each in (downloads, pod(hub)["initContainers"][1]):
        assert "/hub" in {mount["mountPath"] for mount in each["volumeMounts"]}
    assert pod_config(hub).revision == "abc"

    [volume] = [each for each in pod(claim)["volumes"] if "persistentVolumeClaim" in each]
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    mounts = [mount for mount in engine(claim)["volumeMounts"] if mount["name"] == volume["name"]]
    assert mounts == [{"name": volume["name"], "mountPath": "/models/models", "readOnly": True}]

    assert option(engine(image), "--model") == "/weights/m"
    assert environment(engine(image))["HF_HUB_OFFLINE"] == "1"


ON_CPU = {"engine__accelerator": {"type": "None"}}
DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "hf://o/d", "revision": "r"}}
DRAFTS = {"method": "draft_model", "num_speculative_tokens": 3, "model": "o/d", "revision": "r"}
SPARK = {"method": "DSpark", "numTokens": 5}
SPARKS = {"method": "dspark", "num_speculative_tokens": 5}
BY_LOAD = "num_speculative_tokens_per_batch_size"


@pytest.mark.parametrize(
    ("speculative", "fields", "expected", "flags"),
    [
        (
            DRAFT | {"asyncScheduling": "On"},
            {"parallelism__tensor": 2},
            DRAFTS | {"draft_tensor_parallel_size": 2},
            ["--async-scheduling"],
        ),
        (
            {"method": "NGram", "numTokens": 4, "asyncScheduling": "Off", "verification": "Block"},
            {},
            {"method": "ngram_gpu", "num_speculative_tokens": 4, "prompt_lookup_min": 2}
            | {"prompt_lookup_max": 5, "rejection_sample_method": "block"},
            ["--no-async-scheduling"],
        ),
        (
            SPARK | {"draftSampling": "Probabilistic", "verification": "Adaptive"},
            {},
            SPARKS | {"draft_sample_method": "probabilistic", "enable_adaptive_verification": True},
            [],
        ),
        (
            DRAFT | {"method": "Eagle3", "disableAbove": 8},
            {},
            DRAFTS | {"method": "eagle3", "draft_tensor_parallel_size": 1, BY_LOAD: [[1, 8, 3], [9, 9, 0]]},
            [],
        ),
        # By load: up to the largest batch, which vLLM also caps by the tokens of a step.
        (
            {"method": "MTP", "numTokens": "Auto", "maxTokens": 5},
            {"engine__args": ["--max-num-seqs=8"]},
            {
                "method": "mtp",
                "num_speculative_tokens": 5,
                BY_LOAD: [[1, 5, 5], [6, 6, 1], [7, 7, 0], [8, 8, 5]],
            },
            [],
        ),
        (
            {"method": "MTP", "numTokens": "Auto"},
            {"engine__args": ["--max-num-batched-tokens", "100"]},
            {"method": "mtp", "num_speculative_tokens": 3}
            | {BY_LOAD: [[1, 97, 3], [98, 98, 1], [99, 99, 0], [100, 100, 3]]},
            [],
        ),
        # On a CPU a draft model is scheduled as vLLM does there.
        (DRAFT, ON_CPU, DRAFTS | {"draft_tensor_parallel_size": 1}, ["--no-async-scheduling"]),
    ],
)
def test_speculation_is_told_in_vllms_words(
    speculative: Object, fields: Object, expected: Object, flags: list[str]
) -> None:
    gm = guided_model(speculative=speculative, **fields)
    container = engine(gm)
    assert json.loads(option(container, "--speculative-config")) == expected
    assert [argument for argument in container["args"] if "async-scheduling" in argument] == flags
    assert pod_config(gm).drafts_by_load == (speculative["numTokens"] == "Auto")


def test_traces_are_only_sent_if_asked_for() -> None:
    secret = {"secretKeyRef": {"name": "token", "key": "headers"}}
    own = [
        {"name": "OTEL_EXPORTER_OTLP_PROTOCOL", "value": "grpc"},
        {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": secret},
        {"name": "OTEL_EXPORTER_OTLP_CERTIFICATE", "value": "/mnt/ca/ca.pem"},
    ]
    volume = {"name": "ca", "secret": {"secretName": "ca"}}
    asked = {"endpoint": "https://collector:4317/v1/traces", "sampling": "0.25"}
    gm = guided_model(telemetry=asked, engine__env=own, pod={"volumes": [volume]})
    spec = pod(gm)
    for container in (spec["containers"][0], spec["initContainers"][-1]):
        variables = environment(container)
        assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://collector:4317"
        assert variables["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
        assert own[1] in container["env"]
        assert "/mnt/ca" in {mount["mountPath"] for mount in container["volumeMounts"]}
        told = pod_config(gm).telemetry.within({name: value or "" for name, value in variables.items()})
        assert told == config.TelemetryConfig(
            endpoint="https://collector:4317", protocol="GRPC", sampling=0.25
        )
    for silent in (guided_model(), guided_model(telemetry={})):
        assert not [name for name in environment(engine(silent)) if name.startswith("OTEL_")]
        assert pod_config(silent).telemetry.endpoint is None


def test_stages_and_engines_are_told_to_everyone_who_counts_ranks() -> None:
    gm = guided_model(parallelism={"tensor": 2, "pipeline": 3, "data": 4})
    container = engine(gm)
    assert option(container, "--pipeline-parallel-size") == "3"
    assert option(container, "--data-parallel-size") == "4"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "24"
    found = pod_config(gm)
    assert (found.tensor_parallel, found.pipeline_parallel, found.data_parallel) == (2, 3, 4)
    assert (found.workers, found.sampling_ranks) == (6, 8)
    assert not {"--pipeline-parallel-size", "--data-parallel-size"} & set(engine(guided_model())["args"])


@pytest.mark.parametrize(("tensor", "size"), [(1, "1536Mi"), (2, "2Gi"), (8, "5Gi")])
def test_shared_memory_grows_with_the_ranks(tensor: int, size: str) -> None:
    (shm,) = [v for v in pod(guided_model(parallelism__tensor=tensor))["volumes"] if v["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


def test_cpu_ranks_share_the_cpus_of_the_pod() -> None:
    gm = guided_model(
        engine__accelerator={"type": "None"}, parallelism__tensor=2, resources={"limits": {"cpu": "5"}}
    )
    variables = environment(engine(gm))
    assert variables["OMP_NUM_THREADS"] == "2"
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "OMP_NUM_THREADS" not in environment(engine(guided_model()))


def test_the_sidecar_is_native_and_from_the_engines_image() -> None:
    spec = pod(guided_model())
    plugin, sidecar = spec["initContainers"]
    assert plugin["image"] == "guidedmodel:1"
    assert plugin["command"][-1] == environment(sidecar)["PYTHONPATH"] == "/guidedmodel"
    assert (sidecar["restartPolicy"], sidecar["image"]) == ("Always", spec["containers"][0]["image"])


def test_probes_are_integer_ports_and_follow_the_deadlines() -> None:
    spec = pod(guided_model(probes={"startupTimeout": "10m"}))
    container, sidecar = spec["containers"][0], spec["initContainers"][1]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 8001}
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8002}
    assert "livenessProbe" not in sidecar  # a crash-looping sidecar must not kill a healthy engine
    assert "readinessProbe" not in container


def test_children_know_their_owner_once_there_is_one() -> None:
    gm = guided_model()
    assert all("ownerReferences" not in child["metadata"] for child in children_of(gm, SITE))
    owned = gm.model_copy(update={"metadata": gm.metadata.model_copy(update={"uid": "u-1"})})
    for child in children_of(owned, SITE):
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] == "u-1"
        assert owner["controller"] is True


def test_service_reaches_exactly_the_models_pods() -> None:
    gm = guided_model("abc")
    children = {child["kind"]: child for child in children_of(gm, SITE)}
    service, deployment = children["Service"]["spec"], children["Deployment"]["spec"]
    assert service["selector"] == selector(gm) == deployment["selector"]["matchLabels"]
    assert selector(gm).items() <= deployment["template"]["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == 8000
    assert url(gm.namespace, gm.name, SITE) == "http://abc.default.svc:8000"


COMPILE = {"workers": 3, "memory": "512Mi", "maxSchemaSize": "1Mi", "maxDepth": 9, "timeout": "2s"}
COMPILES = config.CompileConfig(
    workers=3, memory_bytes=512 << 20, max_schema_bytes=1 << 20, max_depth=9, timeout_s=2
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, config.GuidedDecodingConfig()),
        ({"compile": COMPILE}, config.GuidedDecodingConfig(compile=COMPILES)),
        (
            {"unsupportedKeywords": "Allow", "proof": "Never", "whitespace": "Unbounded"},
            config.GuidedDecodingConfig(unsupported_keywords="Allow", proof="Never", whitespace="Unbounded"),
        ),
        (
            {"requestOptions": ["Whitespace"]},
            config.GuidedDecodingConfig(request_options=("Whitespace",)),
        ),
        ({"requestOptions": []}, config.GuidedDecodingConfig(request_options=())),
    ],
)
def test_configuration_says_how_grammars_are_compiled_and_what_requests_may_choose(
    fields: Object, expected: config.GuidedDecodingConfig
) -> None:
    gm = guided_model(guidedDecoding=fields)
    assert pod_config(gm).guided_decoding == expected
    [volume] = [volume for volume in pod(gm)["volumes"] if volume["name"] == "config"]
    assert volume["configMap"]["name"] == f"tiny-{pod_key(gm)}", "it belongs to its revision"


def test_configuration_carries_what_engine_and_sidecar_share() -> None:
    processor = {"name": "p", "factory": "a.b:C", "params": {"x": [1]}, "applyByDefault": False}
    found = pod_config(
        guided_model(model__servedName="served", logitsProcessors=[processor], probes={"stallTimeout": "30s"})
    )
    assert (found.name, found.served_name) == ("tiny", "served")
    assert found.logits_processors == [
        config.LogitsProcessorConfig(name="p", factory="a.b:C", params={"x": [1]}, apply_by_default=False)
    ]
    assert found.probes == config.ProbesConfig(stall_timeout_s=30)

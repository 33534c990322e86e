"""What a GuidedModel becomes: the pod, its arguments, environment and configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from guided_contract import config
from guided_operator.api import GuidedModel, words
from guided_operator.builders.children import url
from guided_operator.builders.configuration import config_file
from guided_operator.builders.objects import selector
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.manifests import children_of, guided_model, load

SITE = Site("guidedmodel:1")
LOCAL = Site(
    plugin_image="",
    python="/usr/bin/python",
    run_dir="/x/run",
    config_path="/x/config.json",
    in_cluster=False,
    models=lambda claim: f"/volumes/{claim}",
    bind_host="127.0.0.1",
    ports=config.PortsConfig(engine=1, launcher=2, sidecar=3),
    otlp_endpoint="http://127.0.0.1:5",
)
SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))


def pod(gm: GuidedModel, site: Site = SITE) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template(gm, site)["spec"]
    return spec


def engine(gm: GuidedModel, site: Site = SITE) -> dict[str, Any]:
    container: dict[str, Any] = pod(gm, site)["containers"][0]
    return container


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def option(container: dict[str, Any], name: str) -> str:
    value: str = container["args"][container["args"].index(name) + 1]
    return value


def pod_config(gm: GuidedModel, site: Site = SITE) -> config.PodConfig:
    (text,) = config_file(gm, site).values()
    return config.decode(text.encode())


def test_engine_runs_vllm_under_the_launcher() -> None:
    container = engine(guided_model())
    assert container["command"] == ["python3", "-m", "guided_engine.launcher", "--"]
    assert container["args"] == [
        *("--model", "/models/models/tiny"),
        *("--served-model-name", "tiny"),
        *("--host", "0.0.0.0"),
        *("--port", "8000"),
        *("--tensor-parallel-size", "1"),
    ]


def test_users_arguments_come_last() -> None:
    arguments = engine(guided_model(engine__args=["--seed=4"], model__trustRemoteCode=True))["args"]
    assert arguments[-2:] == ["--trust-remote-code", "--seed=4"]


def test_model_from_the_hub_names_its_revision_and_shares_the_download() -> None:
    gm = guided_model(model={"uri": "hf://org/name", "revision": "abc", "trustRemoteCode": True})
    container = engine(gm)
    assert option(container, "--model") == "org/name"
    assert option(container, "--revision") == option(container, "--tokenizer-revision") == "abc"
    assert "--trust-remote-code" in container["args"]
    assert environment(container)["HF_HOME"] == "/hub"
    assert "HF_HUB_OFFLINE" not in environment(container)
    mounts = [
        {mount["mountPath"] for mount in c["volumeMounts"]} for c in (container, pod(gm)["initContainers"][1])
    ]
    assert all("/hub" in paths for paths in mounts)
    assert pod_config(gm).revision == "abc"


def test_model_in_the_image() -> None:
    container = engine(guided_model(model__uri="file:///weights/m"))
    assert option(container, "--model") == "/weights/m"
    assert environment(container)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("uri", ["pvc://models", "pvc://models/tiny", "file:///weights/m", "hf://o/n"])
def test_a_slash_at_the_end_of_a_location_means_nothing(uri: str) -> None:
    assert option(engine(guided_model(model__uri=f"{uri}/")), "--model") == option(
        engine(guided_model(model__uri=uri)), "--model"
    )


def test_two_models_of_one_claim_share_a_read_only_volume() -> None:
    speculative = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
    spec = pod(guided_model(speculative=speculative))
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert [claim["persistentVolumeClaim"] for claim in claims] == [{"claimName": "models", "readOnly": True}]
    mounts = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == claims[0]["name"]]
    assert mounts == [{"name": claims[0]["name"], "mountPath": "/models/models", "readOnly": True}]


@pytest.mark.parametrize(
    ("speculative", "expected", "flags"),
    [
        (
            {
                "method": "DraftModel",
                "numTokens": 3,
                "draftModel": {"uri": "hf://o/d", "revision": "r"},
                "asyncScheduling": "On",
            },
            {
                "method": "draft_model",
                "num_speculative_tokens": 3,
                "model": "o/d",
                "revision": "r",
                "draft_tensor_parallel_size": 2,
            },
            ["--async-scheduling"],
        ),
        (
            {
                "method": "NGram",
                "numTokens": 4,
                "asyncScheduling": "Off",
                "verification": "Block",
            },
            {
                "method": "ngram_gpu",
                "num_speculative_tokens": 4,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 5,
                "rejection_sample_method": "block",
            },
            ["--no-async-scheduling"],
        ),
        (
            {
                "method": "DSpark",
                "numTokens": 5,
                "draftSampling": "Probabilistic",
                "verification": "Adaptive",
                "asyncScheduling": "On",
            },
            {
                "method": "dspark",
                "num_speculative_tokens": 5,
                "draft_sample_method": "probabilistic",
                "enable_adaptive_verification": True,
            },
            ["--async-scheduling"],
        ),
        (
            {"method": "MTP", "numTokens": "Auto"},
            {
                "method": "mtp",
                "num_speculative_tokens": 3,
                "num_speculative_tokens_per_batch_size": [
                    [1, 125, 3],
                    [126, 126, 1],
                    [127, 127, 0],
                    [128, 128, 3],
                ],
            },
            [],
        ),
        (
            {"method": "Eagle3", "numTokens": 3, "draftModel": {"uri": "hf://o/d"}, "disableAbove": 8},
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "model": "o/d",
                "draft_tensor_parallel_size": 2,
                "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 9, 0]],
            },
            [],
        ),
    ],
)
def test_speculation(speculative: dict[str, Any], expected: dict[str, Any], flags: list[str]) -> None:
    gm = guided_model(speculative=speculative, parallelism__tensor=2)
    container = engine(gm)
    assert json.loads(option(container, "--speculative-config")) == expected
    assert [argument for argument in container["args"] if "async-scheduling" in argument] == flags


def test_with_auto_the_schedule_goes_up_to_the_largest_batch_and_the_engine_is_told() -> None:
    asked = {"method": "NGram", "numTokens": "Auto", "maxTokens": 5}
    gm = guided_model(speculative=asked, engine__args=["--max-num-seqs=8"])
    told = json.loads(option(engine(gm), "--speculative-config"))
    assert told["num_speculative_tokens"] == 5
    assert told["num_speculative_tokens_per_batch_size"] == [[1, 5, 5], [6, 6, 1], [7, 7, 0], [8, 8, 5]]
    assert pod_config(gm).drafts_by_load
    assert not pod_config(
        guided_model(speculative=asked | {"numTokens": 5, "maxTokens": None})
    ).drafts_by_load


@pytest.mark.parametrize("args", [["--max-num-batched-tokens=100"], ["--max-num-batched-tokens", "100"]])
def test_with_auto_the_schedule_ends_where_vllm_caps_the_batch_by_its_tokens(args: list[str]) -> None:
    """vLLM cuts a schedule there, and then it held maxTokens alone: nothing to choose from."""
    gm = guided_model(speculative={"method": "NGram", "numTokens": "Auto"}, engine__args=args)
    told = json.loads(option(engine(gm), "--speculative-config"))
    assert told["num_speculative_tokens_per_batch_size"][1:] == [[98, 98, 1], [99, 99, 0], [100, 100, 3]]


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


def test_idle_connections_are_kept_longer_than_clients_and_gateways_keep_them() -> None:
    assert int(environment(engine(guided_model()))["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 60


def test_users_environment_wins() -> None:
    env = [{"name": "VLLM_NO_USAGE_STATS", "value": "0"}]
    assert environment(engine(guided_model(engine__env=env)))["VLLM_NO_USAGE_STATS"] == "0"


def test_secrets_stay_references_and_reach_the_sidecar_only_for_the_hub() -> None:
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": name, "valueFrom": reference} for name in ("HF_HUB_VERBOSITY", "APP_KEY")]
    spec = pod(guided_model(engine__env=env))
    assert {"name": "HF_HUB_VERBOSITY", "valueFrom": reference} in spec["containers"][0]["env"]
    names = {variable["name"] for variable in spec["initContainers"][1]["env"]}
    assert "HF_HUB_VERBOSITY" in names
    assert "APP_KEY" not in names


def test_engine_and_sidecar_get_opentelemetrys_variables() -> None:
    env = [{"name": name, "value": "x"} for name in words.TELEMETRY]
    spec = pod(guided_model(engine__env=env))
    engine, sidecar = environment(spec["containers"][0]), environment(spec["initContainers"][1])
    assert set(words.TELEMETRY) <= sidecar.keys() & engine.keys()


def test_sidecar_is_native_and_from_the_engines_image() -> None:
    spec = pod(guided_model())
    plugin, sidecar = spec["initContainers"]
    assert plugin["image"] == "guidedmodel:1"
    assert plugin["command"][-1] == environment(sidecar)["PYTHONPATH"] == "/guidedmodel"
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == spec["containers"][0]["image"]
    assert sidecar["resources"] == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"memory": "4Gi"},
    }


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


def test_configuration_belongs_to_its_revision() -> None:
    one, other = guided_model(), guided_model(guidedDecoding={"compile": {"timeout": "2s"}})
    names = [f"{gm.name}-{pod_key(gm)}" for gm in (one, other)]
    assert names[0] != names[1]
    for gm, name in zip((one, other), names, strict=True):
        (volume,) = [volume for volume in pod(gm)["volumes"] if volume["name"] == "config"]
        assert volume["configMap"]["name"] == name
    assert pod_config(other).guided_decoding.compile.timeout_s == 2


def test_configuration_says_what_a_compile_may_take() -> None:
    default = pod_config(guided_model()).guided_decoding.compile
    assert default == config.CompileConfig()
    asked = {"workers": 3, "memory": "512Mi", "maxSchemaSize": "1Mi", "maxDepth": 9}
    found = pod_config(guided_model(guidedDecoding={"compile": asked})).guided_decoding.compile
    assert (found.workers, found.memory_bytes) == (3, 512 << 20)
    assert (found.max_schema_bytes, found.max_depth) == (1 << 20, 9)


def test_configuration_says_how_grammars_are_compiled_and_what_requests_may_choose() -> None:
    default = pod_config(guided_model()).guided_decoding
    assert (default.unsupported_keywords, default.proof, default.whitespace) == (
        "Route",
        "Always",
        "Flexible",
    )
    assert set(default.request_options) == {"Backend", "UnsupportedKeywords", "Whitespace"}
    chosen = {
        "unsupportedKeywords": "Allow",
        "proof": "Never",
        "whitespace": "Unbounded",
        "requestOptions": ["Whitespace"],
    }
    guided = pod_config(guided_model(guidedDecoding=chosen)).guided_decoding
    assert (guided.unsupported_keywords, guided.proof, guided.whitespace) == ("Allow", "Never", "Unbounded")
    assert guided.request_options == ("Whitespace",)
    nothing = pod_config(guided_model(guidedDecoding={"requestOptions": []})).guided_decoding
    assert nothing.request_options == ()


def test_configuration_carries_what_engine_and_sidecar_share() -> None:
    gm = guided_model(
        model__servedName="served",
        parallelism__tensor=2,
        logitsProcessors=[
            {"name": "p", "factory": "a.b:C", "params": {"x": [1]}, "applyByDefault": False},
            {"name": "q", "factory": "a.b:D", "enforced": True},
        ],
        probes={"stallTimeout": "30s"},
    )
    found = pod_config(gm)
    assert (found.name, found.served_name, found.tensor_parallel) == ("tiny", "served", 2)
    assert found.logits_processors == [
        config.LogitsProcessorConfig(name="p", factory="a.b:C", params={"x": [1]}, apply_by_default=False),
        config.LogitsProcessorConfig(name="q", factory="a.b:D", enforced=True),
    ]
    assert found.probes == config.ProbesConfig(stall_timeout_s=30)


def test_local_pod_has_no_path_of_a_clusters_pod() -> None:
    for sample in SAMPLES:
        container = engine(load(sample.read_text()), LOCAL)
        variables = environment(container)
        assert container["command"][0] == "/usr/bin/python"
        assert option(container, "--host") == "127.0.0.1"
        assert option(container, "--port") == "1"
        assert not {"HOME", "HF_HOME", "PYTHONPATH"} & set(variables)
        assert variables["GUIDEDMODEL_CONFIG"] == "/x/config.json"
        assert not any(
            str(value).startswith(("/models", "/tmp", "/guidedmodel")) for value in variables.values()
        )
    tiny = load(SAMPLES[-1].read_text())
    assert option(engine(tiny, LOCAL), "--model") == "/volumes/models/tiny"
    found = pod_config(tiny, LOCAL)
    assert (found.model, found.run_dir, found.bind_host) == ("/volumes/models/tiny", "/x/run", "127.0.0.1")
    assert found.telemetry == config.TelemetryConfig(endpoint="http://127.0.0.1:5")
    assert found.ports == LOCAL.ports


@pytest.mark.parametrize(
    ("method", "asked", "told"),
    [
        ("DraftModel", "Auto", ["--no-async-scheduling"]),
        ("DraftModel", "On", ["--async-scheduling"]),
        ("DraftModel", "Off", ["--no-async-scheduling"]),
        ("NGram", "Auto", []),  # vLLM has it off, and says why
    ],
)
def test_drafts_on_a_cpu_are_scheduled_as_vllm_does_there(method: str, asked: str, told: list[str]) -> None:
    draft = {"draftModel": {"uri": "hf://o/d"}} if method == "DraftModel" else {}
    speculative = {"method": method, "numTokens": 3, "asyncScheduling": asked, **draft}
    gm = guided_model(engine__accelerator={"type": "None"}, speculative=speculative)
    assert [word for word in engine(gm)["args"] if "async-scheduling" in word] == told

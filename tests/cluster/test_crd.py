"""The CRD on a real API server: what it takes, what it refuses, and that Python gives the same verdict."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guided_operator.api import ManifestError, parse
from guided_operator.api.crd import CRD_NAME, custom_resource_definition, main
from guided_operator.api.quantity import amount, canonical
from guided_operator.api.rules import RULES
from guided_operator.builders import cluster_site, manifest, render
from guided_operator.compare import differences
from support.cluster import Cluster, KubectlError
from support.manifests import changed, minimal

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.joinpath("manifests", "samples").glob("*.yaml"))

DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
NGRAM = {"method": "NGram", "numTokens": 3}
SECURE = {
    "endpoint": "https://collector:4317",
    "protocol": "GRPC",
    "tls": {"caSecretRef": {"name": "ca", "key": "ca.pem"}, "clientSecretRef": {"name": "client"}},
    "headersSecretRef": {"name": "token"},
}

GRAMMAR = {"name": "a", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts.v1", "key": "A_b-c.json"}}

ACCEPTED: dict[str, dict[str, Any]] = {
    "minimal": {},
    "hub": {"model": {"uri": "hf://org/name", "revision": "main"}},
    "hub without organisation": {"model__uri": "hf://gpt2"},
    "claim's root": {"model__uri": "pvc://models"},
    "deep folder": {"model__uri": "pvc://models.v2/a/b_c/d.e"},
    "image's folder": {"model__uri": "file:///weights/llama"},
    "draft model": {"speculative": DRAFT},
    "draft model, async": {"speculative": DRAFT | {"asyncScheduling": "On"}},
    "ngram, sync": {"speculative": NGRAM | {"asyncScheduling": "Off"}},
    "arguments": {"engine__args": ["--max-num-seqs=4", "--seed", "7", "--models", "--model-impl=auto"]},
    "async argument without speculation": {"engine__args": ["--async-scheduling"]},
    "environment": {
        "engine__env": [
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    },
    "compact with a named backend": {
        "guidedDecoding": {"placement": "Scheduler", "backend": "Guidance", "whitespace": "Compact"}
    },
    "compact on the ranks": {"guidedDecoding": {"whitespace": "Compact"}},
    "strict and unproven": {"guidedDecoding": {"unsupportedKeywords": "Reject", "proof": "Never"}},
    "ranks compared at every token": {
        "guidedDecoding": {"consensus": {"mode": "Every"}, "onDesync": "FallBackToScheduler"}
    },
    "named grammars": {
        "guidedDecoding": {"grammars": [GRAMMAR, GRAMMAR | {"name": "b", "kind": "StructuralTag"}]}
    },
    "ranks compared now and then": {"guidedDecoding": {"consensus": {"sampleEvery": 1}}},
    "quantities": {"resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}}},
    "processors": {
        "logitsProcessors": [{"name": "a", "factory": "x.y:Z", "params": {"deep": [{"er": None}, 1.5]}}]
    },
    "no pods": {"replicas": 0},
    "telemetry on without a collector": {"telemetry": {}},
    "a share of traces": {"telemetry": {"otlp": {"endpoint": "http://c:4318"}, "sampling": "0.05"}},
    "collector with certificates and headers": {"telemetry": {"otlp": SECURE}},
    "sidecar": {"sidecar": {"restart": {"baseDelay": "1s", "maxDelay": "1s"}}},
    "limits": {"guidedDecoding": {"compile": {"maxSchemaSize": "1Mi", "maxDepth": 128}}},
    "compile": {"guidedDecoding": {"compile": {"workers": 4, "memory": "128Mi", "cacheSize": "10Gi"}}},
    "durations": {"guidedDecoding": {"compile": {"timeout": "1m30s500ms"}}},
}

# Why each is refused: by a rule (its message), or by the schema (the field's name).
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "grammars on vLLM's own path": (
        {"guidedDecoding": {"placement": "Scheduler", "grammars": [GRAMMAR]}},
        "with placement Scheduler there are none",
    ),
    "grammar of an unknown kind": (
        {"guidedDecoding": {"grammars": [GRAMMAR | {"kind": "Lark"}]}},
        "spec.guidedDecoding.grammars[0].kind",
    ),
    "grammar without a text": (
        {"guidedDecoding": {"grammars": [{"name": "a", "kind": "Regex"}]}},
        "spec.guidedDecoding.grammars[0].configMapKeyRef",
    ),
    "grammar with a path for a key": (
        {"guidedDecoding": {"grammars": [GRAMMAR | {"configMapKeyRef": {"name": "a", "key": "a/b"}}]}},
        "spec.guidedDecoding.grammars[0].configMapKeyRef.key",
    ),
    "two grammars of one name": (
        {"guidedDecoding": {"grammars": [GRAMMAR, GRAMMAR]}},
        "spec.guidedDecoding.grammars",
    ),
    "s3": ({"model__uri": "s3://bucket/m"}, "s3:// and oci:// are not supported yet"),
    "oci for the draft": (
        {"speculative": DRAFT | {"draftModel": {"uri": "oci://r/m"}}},
        "s3:// and oci:// are not supported yet",
    ),
    "path upwards": ({"model__uri": "pvc://models/../x"}, "without . or .. in a path"),
    "relative file": ({"model__uri": "file://weights"}, "must be hf://ORG/NAME"),
    "draft's path upwards": (
        {"speculative": DRAFT | {"draftModel": {"uri": "pvc://m/.."}}},
        "must be hf://ORG/NAME",
    ),
    "revision of a volume": ({"model__revision": "main"}, "only a model from the hub"),
    "revision of a draft volume": (
        {"speculative": DRAFT | {"draftModel": {"uri": "pvc://m/d", "revision": "v1"}}},
        "only a model from the hub",
    ),
    "owned argument": ({"engine__args": ["--seed", "7", "--model=x"]}, "repeats what a typed field"),
    "owned argument, underscores": ({"engine__args": ["--tensor_parallel_size", "4"]}, "repeats what"),
    "owned argument, dotted": ({"engine__args": ["--speculative-config.method", "x"]}, "repeats what"),
    "owned argument, short": ({"engine__args": ["-tp=2"]}, "repeats what"),
    "plugin's argument": ({"engine__args": ["--worker-cls", "x.Y"]}, "repeats what"),
    "more parallelism than the pod waits for": (
        {"engine__args": ["--prefill-context-parallel-size=2"]},
        "asks for what these pods do not serve yet",
    ),
    "short form of more nodes": ({"engine__args": ["-n", "2"]}, "asks for what these pods"),
    "short form with its value": ({"engine__args": ["-n2"]}, "asks for what these pods"),
    "key that the probe lacks": (
        {"engine__env": [{"name": "VLLM_API_KEY", "value": "x"}]},
        "guided probe has no key",
    ),
    "async argument beside speculation": (
        {"engine__args": ["--no-async-scheduling"], "speculative": DRAFT},
        "speculative.asyncScheduling decides",
    ),
    "operator's variable": (
        {"engine__env": [{"name": "GUIDEDMODEL_CONFIG", "value": "/x"}]},
        "the operator sets this variable",
    ),
    "variable without a value": ({"engine__env": [{"name": "A"}]}, "exactly one of value and valueFrom"),
    "variable with two values": (
        {
            "engine__env": [
                {"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
            ]
        },
        "exactly one of value and valueFrom",
    ),
    "compact without a backend": (
        {"guidedDecoding": {"placement": "Scheduler", "whitespace": "Compact"}},
        "set backend to XGrammar or Guidance",
    ),
    "processors where no rank runs them": (
        {
            "guidedDecoding": {"placement": "Scheduler"},
            "logitsProcessors": [{"name": "a", "factory": "a.b:C"}],
        },
        "with placement Scheduler there are none",
    ),
    "draft model missing": (
        {"speculative": {"method": "DraftModel", "numTokens": 3}},
        "needs draftModel.uri",
    ),
    "draft model behind stages": (
        {"speculative": DRAFT, "parallelism": {"pipeline": 2}},
        "no draft model behind pipeline stages",
    ),
    "draft model for ngram": ({"speculative": DRAFT | {"method": "NGram"}}, "has no draft model"),
    "async ngram": (
        {"speculative": NGRAM | {"asyncScheduling": "On"}},
        "use Auto or Off, or method DraftModel",
    ),
    "gpu limit": ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, "GPUs follow from engine.device"),
    "gpu request for a cpu": (
        {"engine__device": "CPU", "resources": {"requests": {"nvidia.com/gpu": 1}}},
        "GPUs follow from engine.device",
    ),
    "delays the wrong way round": (
        {"sidecar": {"restart": {"baseDelay": "1m", "maxDelay": "1s"}}},
        "baseDelay must not exceed maxDelay",
    ),
    "base delay over the default": (
        {"sidecar": {"restart": {"baseDelay": "45s"}}},
        "must not exceed maxDelay",
    ),
    "no worker": ({"guidedDecoding": {"compile": {"workers": 0}}}, "workers"),
    "too little memory": ({"guidedDecoding": {"compile": {"memory": "127Mi"}}}, "between 128Mi and 1Ti"),
    "memory as a number": ({"guidedDecoding": {"compile": {"memory": "2e9"}}}, "memory"),
    "too large a schema": ({"guidedDecoding": {"compile": {"maxSchemaSize": "4Mi"}}}, "between 1Ki and 2Mi"),
    "too deep": ({"guidedDecoding": {"compile": {"maxDepth": 1000}}}, "maxDepth"),
    "too large a cache": ({"guidedDecoding": {"compile": {"cacheSize": "2Ti"}}}, "between 1Mi and 1Ti"),
    "timeout too short": ({"guidedDecoding": {"compile": {"timeout": "1ms"}}}, "between 100ms and 10m"),
    "stall timeout too long": ({"probes": {"stallTimeout": "2h"}}, "between 5s and 1h"),
    "no duration": ({"probes": {"stallTimeout": "1.5m"}}, "stallTimeout"),
    "no quantity": ({"resources": {"limits": {"cpu": "two"}}}, "cpu"),
    "unknown enum value": ({"guidedDecoding": {"placement": "rank"}}, "placement"),
    "unquoted Off": ({"guidedDecoding": {"consensus": {"mode": False}}}, "mode"),
    "no interval": ({"guidedDecoding": {"consensus": {"sampleEvery": 0}}}, "sampleEvery"),
    "keywords ignored": ({"guidedDecoding": {"unsupportedKeywords": "Ignore"}}, "unsupportedKeywords"),
    "unknown proof": ({"guidedDecoding": {"proof": "Sometimes"}}, "proof"),
    "unknown policy": ({"guidedDecoding": {"onDesync": "Ignore"}}, "onDesync"),
    "unknown field": ({"guidedDecoding": {"backends": "Auto"}}, "backends"),
    "unknown field of the spec": ({"gpus": 4}, "gpus"),
    "number as text": ({"parallelism": {"tensor": "2"}}, "tensor"),
    "too many ranks of all engines": (
        {"parallelism": {"tensor": 32, "pipeline": 2, "data": 2}},
        "129, the slots for heartbeats",
    ),
    "too many ranks": ({"parallelism": {"tensor": 129}}, "tensor"),
    "no ranks": ({"parallelism": {"tensor": 0}}, "tensor"),
    "negative replicas": ({"replicas": -1}, "replicas"),
    "too many arguments": ({"engine__args": ["--seed"] * 65}, "args"),
    "long argument": ({"engine__args": ["x" * 2049]}, "args"),
    "same variable twice": (
        {"engine__env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "env",
    ),
    "bad factory": ({"logitsProcessors": [{"name": "a", "factory": "x.y"}]}, "factory"),
    "same processor twice": (
        {"logitsProcessors": [{"name": "a", "factory": "x.y:Z"}] * 2},
        "logitsProcessors",
    ),
    "more traces than requests": ({"telemetry": {"sampling": "1.5"}}, "sampling"),
    "sampling as a number": ({"telemetry": {"sampling": 0.5}}, "sampling"),
    "certificates without TLS": (
        {"telemetry": {"otlp": SECURE | {"endpoint": "http://collector:4317"}}},
        "certificates are for an endpoint with https://",
    ),
    "certificates that are not checked": (
        {"telemetry": {"otlp": SECURE | {"tls": {"insecureSkipVerify": True}}}},
        "insecureSkipVerify",
    ),
    "collector without a scheme": ({"telemetry": {"otlp": {"endpoint": "collector:4317"}}}, "endpoint"),
    "too many guesses": ({"speculative": NGRAM | {"numTokens": 33}}, "numTokens"),
}

NAMES = {
    "a": True,
    "tiny-2": True,
    "a" * 40: True,
    "a" * 41: False,
    "2tiny": False,
    "ti.ny": False,
}


@pytest.fixture(scope="module")
def server(api_server: Cluster) -> Iterator[Cluster]:
    api_server.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crd"))
    api_server.kubectl("wait", "--for=condition=Established", f"crd/{CRD_NAME}", "--timeout=60s")
    return api_server


def refusal_of_server(server: Cluster, wanted: dict[str, Any]) -> str:
    """Return why the server refuses a manifest, "" if it takes it; nothing is stored."""
    try:
        server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(wanted))
    except KubectlError as error:
        return str(error)
    return ""


def refusal_of_python(wanted: dict[str, Any]) -> str:
    try:
        parse(wanted)
    except ManifestError as error:
        return str(error)
    return ""


def test_crd_is_established_without_complaint(server: Cluster) -> None:
    conditions = {
        condition["type"]: condition["status"]
        for condition in server.get("crd", CRD_NAME)["status"]["conditions"]
    }
    # NonStructuralSchema would be there too if the server had found anything.
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_server_keeps_the_schema_as_it_was_sent(server: Cluster) -> None:
    sent = custom_resource_definition()["spec"]["versions"][0]["schema"]
    kept = server.get("crd", CRD_NAME)["spec"]["versions"][0]["schema"]
    assert list(differences(sent, kept)) == []


def test_crd_file_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["--check"]) == 0


@pytest.mark.parametrize("fields", ACCEPTED.values(), ids=ACCEPTED)
def test_valid_manifest_is_taken(server: Cluster, fields: dict[str, Any]) -> None:
    wanted = changed(minimal(), **fields)
    assert refusal_of_server(server, wanted) == ""
    assert refusal_of_python(wanted) == ""


@pytest.mark.parametrize(("fields", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_manifest_is_refused_by_both_for_the_same_reason(
    server: Cluster, fields: dict[str, Any], why: str
) -> None:
    wanted = changed(minimal(), **fields)
    assert why in refusal_of_server(server, wanted)
    assert why in refusal_of_python(wanted)


@pytest.mark.parametrize(("name", "valid"), NAMES.items())
def test_names_that_children_can_have(server: Cluster, name: str, valid: bool) -> None:  # noqa: FBT001 - a table
    wanted = minimal(name)
    assert (refusal_of_server(server, wanted) == "") == valid
    assert (refusal_of_python(wanted) == "") == valid


def test_every_rule_is_broken_by_an_example() -> None:
    examples = [changed(minimal(), **fields) for fields, _ in REFUSED.values()]
    said = "\n".join(refusal_of_python(wanted) for wanted in [*examples, *map(minimal, NAMES)])
    assert [rule.message for rule in RULES if rule.message not in said] == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_taken_and_shown(server: Cluster, sample: Path) -> None:
    with server.namespace(f"crd-{sample.stem}") as namespace:
        server.kubectl("apply", "-n", namespace, "-f", str(sample))
        assert "Ready" in server.kubectl("get", "gm", "-n", namespace).title()
        assert "guidedmodel.guidedmodel.io/" in server.kubectl("get", "ai", "-n", namespace, "-o", "name")


def test_server_and_python_fill_in_the_same_defaults(server: Cluster) -> None:
    stored = json.loads(
        server.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(minimal()))
    )
    ours = parse(minimal()).spec.model_dump(by_alias=True, exclude_none=True)
    assert list(differences(ours, stored["spec"])) == []
    assert list(differences(stored["spec"], ours)) == []


def test_status_and_scale_are_subresources(server: Cluster) -> None:
    with server.namespace("crd-subresources") as namespace:
        server.apply(minimal() | {"metadata": {"name": "tiny", "namespace": namespace}})
        server.kubectl("scale", "gm/tiny", "--replicas=3", "-n", namespace)
        status = {"replicas": 2, "selector": "guidedmodel.io/name=tiny", "conditions": [_ready()]}
        patch = json.dumps({"status": status, "spec": {"replicas": 9}})
        server.kubectl(
            "patch", "gm", "tiny", "--subresource=status", "--type=merge", "-p", patch, "-n", namespace
        )
        found = server.get("gm", "tiny", "-n", namespace)
        assert found["spec"]["replicas"] == 3
        assert found["status"] == status
        scale = json.loads(
            server.kubectl("get", "gm", "tiny", "--subresource=scale", "-o", "json", "-n", namespace)
        )
        assert scale["status"] == {"replicas": 2, "selector": "guidedmodel.io/name=tiny"}
        server.kubectl("wait", "--for=condition=Ready", "gm/tiny", "--timeout=10s", "-n", namespace)


def _ready() -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "AllReady",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 2,
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_children_are_taken_and_come_back_as_they_were_sent(server: Cluster, sample: Path) -> None:
    gm = parse(json.loads(_as_json(server, sample)))
    with server.namespace(f"children-{sample.stem}") as namespace:
        moved = gm.model_copy(update={"metadata": gm.metadata.model_copy(update={"namespace": namespace})})
        children = render(moved, cluster_site("guidedmodel:1")).manifests()
        for child in children:
            server.apply(child)
        for child in children:
            live = server.get(child["kind"], child["metadata"]["name"], "-n", namespace)
            assert list(differences(child, live)) == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_pod_is_admitted_under_the_restricted_standard(server: Cluster, sample: Path) -> None:
    gm = parse(json.loads(_as_json(server, sample)))
    template = manifest(render(gm, cluster_site("guidedmodel:1")).deployment.spec.template)
    spec = template["spec"] | {"serviceAccountName": "own"}
    spec.pop("runtimeClassName", None)  # the server has no such class
    with server.namespace(f"restricted-{sample.stem}") as namespace:
        server.kubectl("label", "ns", namespace, "pod-security.kubernetes.io/enforce=restricted")
        server.kubectl("create", "serviceaccount", "own", "-n", namespace)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": namespace}}
        server.apply(pod | {"spec": spec})
        # And the standard is enforced there.
        lax = spec | {"securityContext": {}}
        with pytest.raises(KubectlError, match="violates PodSecurity"):
            server.apply(pod | {"metadata": {"name": "y", "namespace": namespace}, "spec": lax})


def test_canonical_quantities_come_back_as_they_were_sent(server: Cluster) -> None:
    numbers = ["0", "1", "1.5", "0.001", "1000", "1024", "1536", "999999", "1048576", "123456789", ".5", "2."]
    suffixes = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E2", "e0", "E6", "e-1"]
    quantities = [f"{number}{suffix}" for number in numbers for suffix in suffixes]
    wanted = [canonical(quantity) for quantity in quantities]
    assert returned(server, wanted) == wanted
    assert [amount(quantity) for quantity in returned(server, quantities)] == [*map(amount, quantities)]


def returned(server: Cluster, quantities: list[str]) -> list[str]:
    volumes = [{"name": f"v{n}", "emptyDir": {"sizeLimit": size}} for n, size in enumerate(quantities)]
    pod = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "quantities", "namespace": "default"},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes},
        },
    }
    text = server.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    return [volume["emptyDir"]["sizeLimit"] for volume in json.loads(text)["template"]["spec"]["volumes"]]


def _as_json(server: Cluster, sample: Path) -> str:
    return server.kubectl("create", "--dry-run=server", "-o", "json", "-f", str(sample))

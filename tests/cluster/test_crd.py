"""The CRD on a real API server: what it takes, what it refuses, and that the command line says the same."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes.client
import kubernetes.config
import pytest
from devtools.crd import CRD_NAME, custom_resource_definition

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.api.crd import root_schema
from guided_operator.api.quantity import amount, canonical
from guided_operator.cli.rules import broken_rules
from guided_operator.kube.diff import differences
from support.cluster import Cluster, KubectlError
from support.manifests import changed, minimal

pytestmark = pytest.mark.cluster

Refusal = Callable[[dict[str, Any]], str]
DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
NGRAM = {"method": "NGram", "numTokens": 3}
KEY = {"name": "secret", "key": "key"}
ADAPTER = {"name": "a", "uri": "pvc://adapters/a"}
# In all forms that vLLM takes: what the schema refuses, and the sentence that it says.
GRAMMAR = {"name": "a", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts.v1", "key": "A_b-c.json"}}

# What tests/cluster/test_drawn.py does not draw.
ACCEPTED: list[dict[str, Any]] = [
    {"parallelism": {"pipeline": None}, "engine__args": None},
    *(
        {"model": {"uri": "hf://org/name", "revision": revision}}
        for revision in ("release/v1.0-rc.1", "refsheet/1", "feature/refs/pr/7")
    ),
    {"model__uri": "pvc://models/"},
    {"model__uri": "pvc://models.v2/a/b_c/d.e"},
    {"engine__args": ["--seed", "-1", "--hf-overrides.rope_theta=1", "--model=x", "word"]},
    {
        "engine__env": [
            {"name": "APP_A", "value": ""},
            {"name": "LD_PRELOAD", "value": "x"},
            {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    },
    {
        "guidedDecoding": {
            "unsupportedKeywords": "Allow",
            "whitespace": "Unbounded",
            "requestOptions": [],
            "grammars": [GRAMMAR, GRAMMAR | {"name": "b", "kind": "StructuralTag"}],
            "compile": {"workers": 4, "memory": "128Mi", "timeout": "1m30s500ms"},
        }
    },
    {"guidedDecoding": {"placement": "Scheduler", "backend": "Guidance", "whitespace": "Compact"}},
    {
        "logitsProcessors": [
            {"name": "a", "factory": "x.y:Z", "enforced": True},
            {"name": "b", "factory": "x.y:Z", "enforced": True, "applyByDefault": True},
            {"name": "c", "factory": "x.y:Z", "enforced": False, "applyByDefault": False},
        ]
    },
    {"model__authSecretKeyRef": KEY, "lora": {"adapters": [{"name": "a", "uri": "hf://o/n"}]}},
    {"telemetry": {"endpoint": "http://[fd00::1]:4318/v1", "sampling": "0.05"}},
    {"rollout": {"maxSurge": "100%", "maxUnavailable": "0%"}},
    {"rollout": {"rollbackTo": "0123456789", "restartToken": "2026-11-21"}},
    {"rollout": {"rollbackTo": "v2.of-another_form"}},
    {"rollout": {"progressDeadline": "10s"}, "probes": {"startupTimeout": "10s"}},
]

# Why each is refused: by a rule (its message), or by the schema (the field's name).
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"guidedDecoding": {"placement": "Scheduler", "grammars": [GRAMMAR]}},
        "not supported with placement Scheduler",
    ),
    ({"guidedDecoding": {"requestOptions": ["Backend", "Backend"]}}, "spec.guidedDecoding.requestOptions"),
    ({"model__uri": "s3://bucket/m"}, "spec.model.uri"),
    ({"model__uri": "pvc://models/../x"}, "spec.model.uri"),
    ({"model__uri": "hf://https://hub/o/n"}, "spec.model.uri"),
    ({"model__uri": "hf://org/name@main"}, "spec.model.uri"),
    ({"model__revision": "main"}, "is allowed only with an hf:// URI"),
    *(
        ({"model": {"uri": "hf://org/name", "revision": revision}}, "spec.model.revision")
        for revision in ("Refs/pr/7", "pr/7", "a/../refs/pr/7", "-a")
    ),
    ({"engine__args": ["--seed=7\n--model=x"]}, "spec.engine.args[0]"),
    ({"model__authSecretKeyRef": KEY}, "has an hf:// URI"),
    ({"engine__version": "v0.32.0"}, "spec.engine.version"),
    (
        {"speculative": {"method": "Eagle3", "numTokens": 3}},
        "required for methods DraftModel, Eagle3 and DFlash",
    ),
    ({"speculative": DRAFT | {"method": "MTP"}}, "not allowed with methods NGram and MTP"),
    ({"speculative": NGRAM | {"maxTokens": 5}}, "is allowed only with numTokens Auto"),
    ({"lora": {"adapters": [ADAPTER | {"name": "tiny"}]}}, "must not have the served name of the model"),
    ({"pod": {"runAsUser": 0}}, "runAsUser"),
    *(
        ({"pod": {part: value}}, part)
        for (part, value) in {
            "hostNetwork": True,
            "securityContext": {"privileged": True},
            "automountServiceAccountToken": True,
        }.items()
    ),
    ({"engine__env": [{"name": "TZ"}]}, "exactly one of value and valueFrom"),
    (
        {"guidedDecoding": {"placement": "Scheduler", "whitespace": "Compact"}},
        "Compact with placement Scheduler needs backend XGrammar or Guidance",
    ),
    ({"engine__accelerator": {"resource": "cpu"}}, "accelerator.resource"),
    (
        {"engine__accelerator": {"type": "None", "resource": "amd.com/gpu"}},
        "must be Resource if resource or perRank is set",
    ),
    ({"engine__accelerator": {"type": "Claims"}}, "must be set if, and only if, type is Claims"),
    ({"parallelism": {"tensor": 3, "nodes": 2}}, "tensor * pipeline must be a multiple of nodes"),
    (
        {"parallelism": {"tensor": 2, "data": 2, "nodes": 2}},
        "data above 1 together with nodes above 1 is not supported",
    ),
    ({"rollout": {"maxUnavailable": 0}}, "must not be 0 if maxSurge is 0"),
    ({"rollout": {"rollbackTo": "the one before"}}, "rollbackTo"),
    ({"probes": {"stallTimeout": "1.5m"}}, "stallTimeout"),
    ({"resources": {"limits": {"cpu": "two"}}}, "cpu"),
    ({"guidedDecoding": {"placement": "rank"}}, "placement"),
    ({"guidedDecoding": {"backends": "Auto"}}, "backends"),
    ({"parallelism": {"tensor": "2"}}, "tensor"),
    (
        {"parallelism": {"tensor": 32, "pipeline": 2, "data": 2}},
        "129, the number of processes that a pod can watch",
    ),
    ({"engine__env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "env"),
    ({"logitsProcessors": [{"name": "a", "factory": "x.y"}]}, "factory"),
    (
        {
            "logitsProcessors": [
                {"name": "a", "factory": "x.y:Z"},
                {"name": "b", "factory": "x.y:Z", "enforced": True, "applyByDefault": False},
            ]
        },
        "an enforced processor always runs: remove applyByDefault",
    ),
    ({"telemetry": {"sampling": "1.5"}}, "sampling"),
    *(
        ({"telemetry": {"endpoint": endpoint}}, "spec.telemetry.endpoint")
        for endpoint in ("http://[::1", "http://[1:2]", "http://a:65536", "collector:4317")
    ),
]

NAMES = {
    "a": True,
    "tiny-2": True,
    "a" * 40: True,
    "a" * 41: False,
    "2tiny": False,
    "ti.ny": False,
}


@pytest.fixture(scope="module")
def refusal_of_server(server: Cluster) -> Iterator[Refusal]:
    """Say why the server refuses a manifest, "" if it takes it; nothing is stored."""
    where = (names.API_GROUP, names.API_VERSION, "default", names.PLURAL)
    with kubernetes.config.new_client_from_config(str(server.kubeconfig)) as client:
        create = kubernetes.client.CustomObjectsApi(client).create_namespaced_custom_object

        def refusal(wanted: dict[str, Any]) -> str:
            try:
                create(*where, wanted, dry_run="All", field_validation="Strict")
            except kubernetes.client.ApiException as error:
                return str(json.loads(error.body)["message"])
            return ""

        yield refusal


def refusal_of_python(wanted: dict[str, Any]) -> str:
    try:
        return "\n".join(map(str, broken_rules(parse(wanted))))
    except ManifestError as error:
        return str(error)


def test_crd_is_established_without_complaint_and_kept_as_it_was_sent(server: Cluster) -> None:
    found = server.get("crd", CRD_NAME)
    # NonStructuralSchema would be there too if the server had found anything.
    told = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert told == {"NamesAccepted": "True", "Established": "True"}
    sent = custom_resource_definition()["spec"]["versions"][0]["schema"]
    assert differences(sent, found["spec"]["versions"][0]["schema"]) == []


@pytest.mark.parametrize("fields", ACCEPTED, ids=str)
def test_valid_manifest_is_taken(refusal_of_server: Refusal, fields: dict[str, Any]) -> None:
    wanted = changed(minimal(), **fields)
    assert refusal_of_server(wanted) == ""
    assert refusal_of_python(wanted) == ""


@pytest.mark.parametrize(("fields", "why"), REFUSED, ids=str)
def test_invalid_manifest_is_refused_by_both_for_the_same_reason(
    refusal_of_server: Refusal, fields: dict[str, Any], why: str
) -> None:
    wanted = changed(minimal(), **fields)
    assert why in refusal_of_server(wanted)
    assert why in refusal_of_python(wanted)


@pytest.mark.parametrize(("name", "valid"), NAMES.items())
def test_names_that_children_can_have(refusal_of_server: Refusal, name: str, valid: bool) -> None:  # noqa: FBT001 - a table
    wanted = minimal(name)
    assert (refusal_of_server(wanted) == "") == valid
    assert (refusal_of_python(wanted) == "") == valid


def rules_within(schema: Any) -> Iterator[dict[str, str]]:
    """Yield each rule of a schema and of its fields."""
    yield from schema.get("x-kubernetes-validations", ())
    for field in (*schema.get("properties", {}).values(), schema.get("items", {})):
        if field:
            yield from rules_within(field)


def test_every_rule_is_broken_by_an_example() -> None:
    examples = [changed(minimal(), **fields) for fields, _ in REFUSED]
    said = "\n".join(refusal_of_python(wanted) for wanted in [*examples, *map(minimal, NAMES)])
    # Those of the other rules are about a change.
    messages = [rule["message"] for rule in rules_within(root_schema()) if "oldSelf" not in rule["rule"]]
    assert [message for message in messages if message not in said] == []


def test_one_node_and_several_are_never_changed_into_each_other(server: Cluster) -> None:
    with server.namespace("crd-nodes") as namespace:

        def spread(**parallelism: int) -> str:
            metadata = {"name": "tiny", "namespace": namespace}
            try:
                server.apply(changed(minimal(), parallelism=parallelism) | {"metadata": metadata})
            except KubectlError as error:
                return str(error)
            return ""

        assert spread(tensor=4) == ""
        assert "cannot change from 1 to more" in spread(tensor=4, nodes=2)
        server.kubectl("delete", "gm/tiny", "-n", namespace)
        assert spread(tensor=4, nodes=2) == ""
        assert spread(tensor=4, nodes=4) == "", "from more to still more"
        assert "cannot change from 1 to more" in spread(tensor=4), "by leaving it out"
        unset = json.dumps([{"op": "remove", "path": "/spec/parallelism"}])
        with pytest.raises(KubectlError, match="cannot change from 1 to more"):
            server.kubectl("patch", "gm/tiny", "--type=json", "-p", unset, "-n", namespace)


def test_processors_are_applied_as_one_list_in_its_order(server: Cluster) -> None:
    """Merged by name, two who apply them would get an order that neither wrote."""

    def apply(manager: str, *names: str) -> list[str]:
        processors = [{"name": name, "factory": "a.b:C"} for name in names]
        wanted = changed(minimal(), logitsProcessors=processors) | {
            "metadata": {"name": "tiny", "namespace": namespace}
        }
        options = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
        server.kubectl("apply", *options, "-f", "-", stdin=json.dumps(wanted))
        stored = server.get("gm", "tiny", "-n", namespace)["spec"]["logitsProcessors"]
        return [each["name"] for each in stored]

    with server.namespace("crd-processors") as namespace:
        assert apply("first", "a", "b", "c") == ["a", "b", "c"]
        assert apply("second", "d", "c", "a") == ["d", "c", "a"]


def test_status_and_scale_are_subresources(server: Cluster) -> None:
    with server.namespace("crd-subresources") as namespace:
        server.apply(minimal() | {"metadata": {"name": "tiny", "namespace": namespace}})
        server.kubectl("scale", "gm/tiny", "--replicas=3", "-n", namespace)
        status = {"replicas": 2, "selector": "guidedmodel.io/name=tiny"}
        patch = ("--type=merge", "-p", json.dumps({"status": status, "spec": {"replicas": 9}}))
        server.kubectl("patch", "gm", "tiny", "--subresource=status", *patch, "-n", namespace)
        found = server.get("gm", "tiny", "-n", namespace)
        assert found["spec"]["replicas"] == 3
        assert found["status"] == {"observedGeneration": -1} | status  # no operator has seen it
        assert server.get("gm", "tiny", "--subresource=scale", "-n", namespace)["status"] == status
        assert "READY" in server.kubectl("get", "ai", "-n", namespace), "the category's, with our columns"


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

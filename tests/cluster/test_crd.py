"""The CRD on a real API server: what it takes, what it refuses, and that the command line says the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools.crd import CRD_NAME, custom_resource_definition

from guided_operator.api import ManifestError, parse
from guided_operator.api.crd import root_schema
from guided_operator.api.quantity import amount, canonical
from guided_operator.cli.rules import broken_rules
from guided_operator.kube.diff import differences
from guided_operator.kube.kinds import model_path
from support.cluster import Cluster, KubectlError
from support.dry_run import DryRun
from support.manifests import changed, minimal
from support.operator_process import install_crd

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.joinpath("manifests", "samples").glob("*.yaml"))

DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "pvc://models/draft"}}
NGRAM = {"method": "NGram", "numTokens": 3}
KEY = {"name": "secret", "key": "key"}
HUB = {"uri": "hf://o/n"}
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
DEVICES = {"name": "gpus", "resourceClaimTemplateName": "four-gpus"}
ADAPTER = {"name": "a", "uri": "pvc://adapters/a"}
SPREAD = {"topologyKey": "kubernetes.io/hostname"}
POD = {
    "labels": {"team": "a", "example.com/cost": ""},
    "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    "nodeSelector": {"nvidia.com/gpu.product": "H100"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "value": "yes"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            }
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": SPREAD | {"labelSelector": {"matchLabels": {"a": "b"}}}}
            ]
        },
    },
    "topologySpreadConstraints": [SPREAD | {"maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "high",
    "schedulerName": "volcano",
    "runtimeClassName": "nvidia",
    "serviceAccountName": "other",
    "imagePullSecrets": [{"name": "registry"}],
    "runAsUser": 1000,
    "fsGroup": 1000,
    "volumes": [
        {"name": "templates", "configMap": {"name": "t"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "d", "readOnly": False}},
        {"name": "certificates", "secret": {"secretName": "s"}},
    ],
}
# In all forms that vLLM takes: what the schema refuses, and the sentence that it says.
GRAMMAR = {"name": "a", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts.v1", "key": "A_b-c.json"}}

ACCEPTED: dict[str, dict[str, Any]] = {
    "minimal": {},
    "null for what has a default": {"parallelism": {"pipeline": None}, "engine__args": None},
    "hub": {"model": {"uri": "hf://org/name", "revision": "main"}},
    **{
        f"revision {revision}": {"model": {"uri": "hf://org/name", "revision": revision}}
        for revision in ("release/v1.0-rc.1", "a" * 40, "refsheet/1", "pr/fix", "feature/refs/pr/7")
    },
    "hub without organisation": {"model__uri": "hf://gpt2"},
    "claim's root": {"model__uri": "pvc://models"},
    "claim's root with a slash": {"model__uri": "pvc://models/"},
    "folder with a slash": {"model__uri": "pvc://models/tiny/"},
    "deep folder": {"model__uri": "pvc://models.v2/a/b_c/d.e"},
    "image's folder": {"model__uri": "file:///weights/llama"},
    "draft model": {"speculative": DRAFT},
    "draft model, async": {"speculative": DRAFT | {"asyncScheduling": "On"}},
    "ngram, sync": {"speculative": NGRAM | {"asyncScheduling": "Off"}},
    # What they may be is for the operator to say.
    "arguments": {"engine__args": ["--seed", "-1", "--hf-overrides.rope_theta=1", "--model=x", "word"]},
    "environment": {
        "engine__env": [
            {"name": "APP_A", "value": ""},
            {"name": "LD_PRELOAD", "value": "x"},
            {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    },
    "a revision of another form": {"rollout": {"rollbackTo": "v2.of-another_form"}},
    "compact with a named backend": {
        "guidedDecoding": {"placement": "Scheduler", "backend": "Guidance", "whitespace": "Compact"}
    },
    "compact on the ranks": {"guidedDecoding": {"whitespace": "Compact"}},
    "strict and unproven": {"guidedDecoding": {"unsupportedKeywords": "Reject", "proof": "Never"}},
    "as vLLM does": {"guidedDecoding": {"unsupportedKeywords": "Allow", "whitespace": "Unbounded"}},
    "requests choose little": {"guidedDecoding": {"requestOptions": ["Whitespace"]}},
    "requests choose nothing": {"guidedDecoding": {"requestOptions": []}},
    "named grammars": {
        "guidedDecoding": {"grammars": [GRAMMAR, GRAMMAR | {"name": "b", "kind": "StructuralTag"}]}
    },
    "quantities": {"resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}}},
    "processors": {
        "logitsProcessors": [{"name": "a", "factory": "x.y:Z", "params": {"deep": [{"er": None}, 1.5]}}]
    },
    "processors that are enforced": {
        "logitsProcessors": [
            {"name": "a", "factory": "x.y:Z", "enforced": True},
            {"name": "b", "factory": "x.y:Z", "enforced": True, "applyByDefault": True},
            {"name": "c", "factory": "x.y:Z", "enforced": False, "applyByDefault": False},
        ]
    },
    "no pods": {"replicas": 0},
    "several nodes": {"parallelism": {"tensor": 4, "pipeline": 2, "nodes": 4}},
    "network policy": {"networkPolicy": {}},
    "network policy with peers": {
        "networkPolicy": {"allowFrom": [{"namespaceLabels": {"a/b": "c"}, "podLabels": {"d": ""}}]}
    },
    "network policy for nobody": {"networkPolicy": {"allowFrom": []}},
    "metrics": {"telemetry": {"metrics": {"interval": "15s", "labels": {"release": "prometheus"}}}},
    "no time to drain": {"drain": {"timeout": "0s"}},
    "token of the hub": {"model": {"uri": "hf://o/n", "authSecretKeyRef": KEY}},
    "token for the draft": {"model__authSecretKeyRef": KEY, "speculative": DRAFT | {"draftModel": HUB}},
    "token for an adapter": {"model__authSecretKeyRef": KEY, "lora": {"adapters": [{"name": "a"} | HUB]}},
    "engine": {
        "engine": {
            "image": "example.com/mine@sha256:00",
            "version": "0.32.0",
            "apiKeySecretKeyRef": KEY,
        }
    },
    "head": {"speculative": DRAFT | {"method": "Eagle3", "asyncScheduling": "On"}},
    "head behind stages": {
        "speculative": DRAFT | {"method": "Eagle3"},
        "parallelism": {"pipeline": 2},
    },
    "ngram, async": {"speculative": NGRAM | {"asyncScheduling": "On"}},
    "the model's own block": {
        "speculative": {"method": "DSpark", "numTokens": 5, "verification": "Adaptive"},
    },
    "head that proposes blocks": {
        "speculative": DRAFT
        | {"method": "DFlash", "draftSampling": "Probabilistic", "verification": "Block"},
    },
    "guesses by load": {"speculative": NGRAM | {"numTokens": "Auto"}},
    "guesses by load, at most": {"speculative": NGRAM | {"numTokens": "Auto", "maxTokens": 5}},
    "own layers": {"speculative": {"method": "MTP", "numTokens": 1, "disableAbove": 32}},
    "adapters": {"lora": {"adapters": [ADAPTER]}},
    "storage": {"storage": {"hub": CLAIM, "cache": CLAIM, "sharedMemory": "8Gi"}},
    "on the CPU": {"engine__accelerator": {"type": "None"}},
    "accelerators of AMD": {"engine__accelerator": {"resource": "amd.com/gpu"}},
    "slices of a GPU": {"engine__accelerator": {"resource": "nvidia.com/mig-1g.10gb", "perRank": 2}},
    "claims of devices": {
        "engine__accelerator": {"type": "Claims", "claims": [DEVICES]},
        "pod": {"resourceClaims": [{"name": "channel", "resourceClaimName": "c"}]},
    },
    "network devices": {"resources": {"limits": {"rdma/hca": 1, "nvidia.com/hostdev": 1}}},
    "downloads with a limit": {"resources": {"limits": {"ephemeral-storage": "200Gi"}}},
    "pod": {"pod": POD},
    "metrics as usual": {"telemetry": {"metrics": {}}},
    "telemetry on without a collector": {"telemetry": {}},
    "a share of traces": {"telemetry": {"endpoint": "http://c:4318", "sampling": "0.05"}},
    "collectors by address": {"telemetry": {"endpoint": "http://[fd00::1]:4318/v1"}},
    "limits": {"guidedDecoding": {"compile": {"maxSchemaSize": "1Mi", "maxDepth": 128}}},
    "compile": {"guidedDecoding": {"compile": {"workers": 4, "memory": "128Mi"}}},
    "rollout without spare GPUs": {"rollout": {"maxUnavailable": "25%", "paused": True}},
    "rollout with a spare pod": {"rollout": {"maxSurge": 1, "maxUnavailable": 0}},
    "rollout with a share to spare": {"rollout": {"maxSurge": "100%", "maxUnavailable": "0%"}},
    "rollout back, restarted": {"rollout": {"rollbackTo": "0123456789", "restartToken": "2026-11-21"}},
    "deadline of a quick start": {
        "rollout": {"progressDeadline": "10s"},
        "probes": {"startupTimeout": "10s"},
    },
    "durations": {"guidedDecoding": {"compile": {"timeout": "1m30s500ms"}}},
}

# Why each is refused: by a rule (its message), or by the schema (the field's name).
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "grammars on vLLM's own path": (
        {"guidedDecoding": {"placement": "Scheduler", "grammars": [GRAMMAR]}},
        "not supported with placement Scheduler",
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
    "what requests may choose, twice": (
        {"guidedDecoding": {"requestOptions": ["Backend", "Backend"]}},
        "spec.guidedDecoding.requestOptions",
    ),
    "two grammars of one name": (
        {"guidedDecoding": {"grammars": [GRAMMAR, GRAMMAR]}},
        "spec.guidedDecoding.grammars",
    ),
    "s3": ({"model__uri": "s3://bucket/m"}, "spec.model.uri"),
    "path upwards": ({"model__uri": "pvc://models/../x"}, "spec.model.uri"),
    "blank in a path": ({"model__uri": "pvc://models/my model"}, "spec.model.uri"),
    "address of a hub's page": ({"model__uri": "hf://https://hub/o/n"}, "spec.model.uri"),
    "revision behind the name": ({"model__uri": "hf://org/name@main"}, "spec.model.uri"),
    "tag behind the name": ({"model__uri": "hf://org/name:v1"}, "spec.model.uri"),
    "relative file": ({"model__uri": "file://weights"}, "spec.model.uri"),
    "revision of a volume": ({"model__revision": "main"}, "is allowed only with an hf:// URI"),
    **{
        f"revision {revision}": (
            {"model": {"uri": "hf://org/name", "revision": revision}},
            "spec.model.revision",
        )
        for revision in ("refs/pr/7", "Refs/pr/7", "pr/7", "/refs/pr/7", "a/../refs/pr/7", "a..b", "-a")
    },
    "draft of a stranger": (
        {"speculative": DRAFT | {"draftModel": HUB | {"revision": "refs/pr/7"}}},
        "spec.speculative.draftModel.revision",
    ),
    "argument with a tab": ({"engine__args": ["--seed\t=1"]}, "spec.engine.args[0]"),
    "argument with a line break": ({"engine__args": ["--seed=7\n--model=x"]}, "spec.engine.args[0]"),
    "line break behind an option": ({"engine__args": ["--seed=7", "--model\n"]}, "spec.engine.args[1]"),
    "token for nobody": ({"model__authSecretKeyRef": KEY}, "has an hf:// URI"),
    "key of a Secret without its name": (
        {"engine__apiKeySecretKeyRef": {"key": "k"}},
        "apiKeySecretKeyRef.name",
    ),
    "version of a tag": ({"engine__version": "v0.32.0"}, "spec.engine.version"),
    "head missing": (
        {"speculative": {"method": "Eagle3", "numTokens": 3}},
        "required for methods DraftModel, Eagle3 and DFlash",
    ),
    "draft model beside own layers": (
        {"speculative": DRAFT | {"method": "MTP"}},
        "not allowed with methods NGram and MTP",
    ),
    "grammars that guess": ({"speculative": {"method": "Grammar", "numTokens": 3}}, "method"),
    "a number of guesses, and another": (
        {"speculative": NGRAM | {"maxTokens": 5}},
        "is allowed only with numTokens Auto",
    ),
    "guesses by another word": ({"speculative": NGRAM | {"numTokens": "auto"}}, "numTokens"),
    "a number of guesses as a text": ({"speculative": NGRAM | {"numTokens": "3"}}, "numTokens"),
    "too many guesses by load": (
        {"speculative": NGRAM | {"numTokens": "Auto", "maxTokens": 33}},
        "maxTokens",
    ),
    "guesses never": ({"speculative": NGRAM | {"disableAbove": 0}}, "disableAbove"),
    "no adapters": ({"lora": {"adapters": []}}, "adapters"),
    "adapter upwards": (
        {"lora": {"adapters": [ADAPTER | {"uri": "pvc://a/../b"}]}},
        "spec.lora.adapters[0].uri",
    ),
    "adapter called as the model": (
        {"lora": {"adapters": [ADAPTER | {"name": "tiny"}]}},
        "must not have the served name of the model",
    ),
    "two adapters of one name": ({"lora": {"adapters": [ADAPTER, ADAPTER]}}, "spec.lora.adapters"),
    "two volumes of one name": (
        {"pod": {"volumes": [{"name": "a", "emptyDir": {}}] * 2}},
        "spec.pod.volumes",
    ),
    "volume's name with a path": (
        {"pod": {"volumes": [{"name": "a/b", "emptyDir": {}}]}},
        "spec.pod.volumes[0]",
    ),
    "root": ({"pod": {"runAsUser": 0}}, "runAsUser"),
    "root's group": ({"pod": {"fsGroup": 0}}, "fsGroup"),
    **{
        f"{part} of a pod": ({"pod": {part: value}}, part)
        for part, value in {
            **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), True),
            "containers": [],
            "securityContext": {"privileged": True},
        }.items()
    },
    "token of the service account": ({"pod": {"automountServiceAccountToken": True}}, "automount"),
    "variable without a value": ({"engine__env": [{"name": "TZ"}]}, "exactly one of value and valueFrom"),
    "variable with two values": (
        {
            "engine__env": [
                {"name": "TZ", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
            ]
        },
        "exactly one of value and valueFrom",
    ),
    "compact without a backend": (
        {"guidedDecoding": {"placement": "Scheduler", "whitespace": "Compact"}},
        "Compact with placement Scheduler needs backend XGrammar or Guidance",
    ),
    "draft model missing": (
        {"speculative": {"method": "DraftModel", "numTokens": 3}},
        "required for methods DraftModel, Eagle3 and DFlash",
    ),
    "draft model for ngram": (
        {"speculative": DRAFT | {"method": "NGram"}},
        "not allowed with methods NGram and MTP",
    ),
    "DFlash without its head": (
        {"speculative": {"method": "DFlash", "numTokens": 7}},
        "required for methods DraftModel, Eagle3 and DFlash",
    ),
    "device as it was": ({"engine__device": "CPU"}, "device"),
    "cpu for an accelerator": ({"engine__accelerator": {"resource": "cpu"}}, "accelerator.resource"),
    "no accelerators": ({"engine__accelerator": {"perRank": 0}}, "accelerator.perRank"),
    "resource of no accelerators": (
        {"engine__accelerator": {"type": "None", "resource": "amd.com/gpu"}},
        "must be Resource if resource or perRank is set",
    ),
    "claims of no type": (
        {"engine__accelerator": {"claims": [DEVICES]}},
        "must be set if, and only if, type is Claims",
    ),
    "claims of nothing": (
        {"engine__accelerator": {"type": "Claims"}},
        "must be set if, and only if, type is Claims",
    ),
    "nodes that ranks cannot be spread over": (
        {"parallelism": {"tensor": 3, "nodes": 2}},
        "tensor * pipeline must be a multiple of nodes",
    ),
    "engines over nodes": (
        {"parallelism": {"tensor": 2, "data": 2, "nodes": 2}},
        "data above 1 together with nodes above 1 is not supported",
    ),
    "rollout that cannot move": ({"rollout": {"maxUnavailable": 0}}, "must not be 0 if maxSurge is 0"),
    "rollout that cannot move, in percent": (
        {"rollout": {"maxUnavailable": "0%", "maxSurge": "0%"}},
        "must not be 0 if maxSurge is 0",
    ),
    "more than all pods": ({"rollout": {"maxUnavailable": "101%"}}, "maxUnavailable"),
    "negative surge": ({"rollout": {"maxSurge": -1}}, "maxSurge"),
    "surge as words": ({"rollout": {"maxSurge": "one"}}, "maxSurge"),
    "rollback to a number": ({"rollout": {"rollbackTo": 3}}, "rollbackTo"),
    "rollback to a name": ({"rollout": {"rollbackTo": "the one before"}}, "rollbackTo"),
    "no worker": ({"guidedDecoding": {"compile": {"workers": 0}}}, "workers"),
    "memory as a number": ({"guidedDecoding": {"compile": {"memory": "2e9"}}}, "memory"),
    "too deep": ({"guidedDecoding": {"compile": {"maxDepth": 1000}}}, "maxDepth"),
    "no duration": ({"probes": {"stallTimeout": "1.5m"}}, "stallTimeout"),
    "no quantity": ({"resources": {"limits": {"cpu": "two"}}}, "cpu"),
    "unknown enum value": ({"guidedDecoding": {"placement": "rank"}}, "placement"),
    "keywords ignored": ({"guidedDecoding": {"unsupportedKeywords": "Ignore"}}, "unsupportedKeywords"),
    "unknown proof": ({"guidedDecoding": {"proof": "Sometimes"}}, "proof"),
    "unknown field": ({"guidedDecoding": {"backends": "Auto"}}, "backends"),
    "unknown field of the spec": ({"gpus": 4}, "gpus"),
    "number as text": ({"parallelism": {"tensor": "2"}}, "tensor"),
    "too many ranks of all engines": (
        {"parallelism": {"tensor": 32, "pipeline": 2, "data": 2}},
        "129, the number of processes that a pod can watch",
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
    "enforced, and not by default": (
        {
            "logitsProcessors": [
                {"name": "a", "factory": "x.y:Z"},
                {"name": "b", "factory": "x.y:Z", "enforced": True, "applyByDefault": False},
            ]
        },
        "an enforced processor always runs: remove applyByDefault",
    ),
    "same processor twice": (
        {"logitsProcessors": [{"name": "a", "factory": "x.y:Z"}] * 2},
        "logitsProcessors",
    ),
    "more traces than requests": ({"telemetry": {"sampling": "1.5"}}, "sampling"),
    "sampling as a number": ({"telemetry": {"sampling": 0.5}}, "sampling"),
    **{
        f"collector {endpoint}": ({"telemetry": {"endpoint": endpoint}}, "spec.telemetry.endpoint")
        for endpoint in ("http://[::1", "http://a]b", "http://[1:2]", "http://[1.2.3.4]", "http://a:65536")
    },
    "collector without a scheme": ({"telemetry": {"endpoint": "collector:4317"}}, "endpoint"),
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
    install_crd(api_server)
    return api_server


@pytest.fixture(scope="module")
def dry_run(server: Cluster) -> Iterator[DryRun]:
    connection = DryRun(server)
    yield connection
    connection.close()


def refusal_of_server(dry_run: DryRun, wanted: dict[str, Any]) -> str:
    """Return why the server refuses a manifest, "" if it takes it; nothing is stored."""
    return dry_run.refusal(model_path("default", ""), wanted)


def refusal_of_python(wanted: dict[str, Any]) -> str:
    try:
        return "\n".join(map(str, broken_rules(parse(wanted))))
    except ManifestError as error:
        return str(error)


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
    assert differences(sent, kept) == []


@pytest.mark.parametrize("fields", ACCEPTED.values(), ids=ACCEPTED)
def test_valid_manifest_is_taken(dry_run: DryRun, fields: dict[str, Any]) -> None:
    wanted = changed(minimal(), **fields)
    assert refusal_of_server(dry_run, wanted) == ""
    assert refusal_of_python(wanted) == ""


@pytest.mark.parametrize(("fields", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_manifest_is_refused_by_both_for_the_same_reason(
    dry_run: DryRun, fields: dict[str, Any], why: str
) -> None:
    wanted = changed(minimal(), **fields)
    assert why in refusal_of_server(dry_run, wanted)
    assert why in refusal_of_python(wanted)


@pytest.mark.parametrize(("name", "valid"), NAMES.items())
def test_names_that_children_can_have(dry_run: DryRun, name: str, valid: bool) -> None:  # noqa: FBT001 - a table
    wanted = minimal(name)
    assert (refusal_of_server(dry_run, wanted) == "") == valid
    assert (refusal_of_python(wanted) == "") == valid


def rules_within(schema: Any) -> Iterator[dict[str, str]]:
    """Yield each rule of a schema and of its fields."""
    yield from schema.get("x-kubernetes-validations", ())
    for field in (*schema.get("properties", {}).values(), schema.get("items", {})):
        if field:
            yield from rules_within(field)


def test_every_rule_is_broken_by_an_example() -> None:
    examples = [changed(minimal(), **fields) for fields, _ in REFUSED.values()]
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
    assert differences(ours, stored["spec"]) == []
    assert differences(stored["spec"], ours) == []


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
        status = {"replicas": 2, "selector": "guidedmodel.io/name=tiny", "conditions": [_ready()]}
        patch = json.dumps({"status": status, "spec": {"replicas": 9}})
        server.kubectl(
            "patch", "gm", "tiny", "--subresource=status", "--type=merge", "-p", patch, "-n", namespace
        )
        found = server.get("gm", "tiny", "-n", namespace)
        assert found["spec"]["replicas"] == 3
        assert found["status"] == {"observedGeneration": -1} | status  # no operator has seen it
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

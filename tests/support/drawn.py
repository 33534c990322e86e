"""GuidedModels drawn at random from all that the API takes."""

from typing import Any

from hypothesis import strategies as st

from guided_operator.api import parse
from guided_operator.api.quantity import amount
from support.manifests import changed, minimal

LOCAL_URIS = st.sampled_from(["pvc://models/a", "pvc://other.claim", "pvc://models/b/c", "file:///m"])
URIS = LOCAL_URIS | st.sampled_from(["hf://o/n", "hf://gpt2"])
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage"]),
    st.sampled_from(["1", 2, "500m", "0.5", "1.5Gi", "1024Mi", "1e3", "2000m"]),
)


def is_within(resources: dict[str, Any]) -> bool:
    """Say whether no request exceeds its limit."""
    limits = resources.get("limits", {})
    return all(
        amount(str(value)) <= amount(str(limits.get(name, value)))
        for name, value in resources.get("requests", {}).items()
    )


RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}).filter(is_within)
ABOVE = {"disableAbove": st.integers(1, 512), "verification": st.sampled_from(["Fixed", "Block"])}
NUMBER = st.integers(1, 32) | st.just("Auto")
SAMPLED = ABOVE | {
    "draftSampling": st.sampled_from(["Greedy", "Probabilistic"]),
    "verification": st.sampled_from(["Fixed", "Block", "Adaptive"]),
}
SPECULATIVE = (
    st.fixed_dictionaries(
        {"method": st.just("NGram"), "numTokens": NUMBER},
        optional={
            "asyncScheduling": st.sampled_from(["Auto", "On", "Off"]),
        }
        | ABOVE,
    )
    | st.fixed_dictionaries(
        {"method": st.sampled_from(["MTP", "DSpark"]), "numTokens": NUMBER}, optional=SAMPLED
    )
    | st.fixed_dictionaries(
        {
            "method": st.sampled_from(["DraftModel", "Eagle3", "DSpark", "DFlash"]),
            "numTokens": NUMBER,
            "draftModel": st.fixed_dictionaries({"uri": URIS}),
        },
        optional={"asyncScheduling": st.sampled_from(["Auto", "On", "Off"])} | SAMPLED,
    )
)
NAMES = st.sampled_from(["a", "b-2", "c.d"])
SECRETS = st.fixed_dictionaries({"name": NAMES, "key": st.just("k")})
SIZES = st.sampled_from(["64Mi", "1024Mi", "3Gi"])
LABELS = st.dictionaries(
    st.sampled_from(["team", "example.com/cost", "sidecar.istio.io/inject"]),
    st.sampled_from(["", "a", "B_1"]),
)
POD_TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
    "namespaces": ["other"],
}
NODE_TERM = {"matchExpressions": [{"key": "gpu.memory", "operator": "Gt", "values": ["40"]}]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": NODE_TERM}],
    },
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM]},
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": POD_TERM}]
    },
}
TOLERATIONS = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "spot", "value": "true", "effect": "NoExecute", "tolerationSeconds": 60},
    ]
)
VOLUMES = st.sampled_from(
    [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"persistentVolumeClaim": {"claimName": "scratch", "readOnly": True}},
        {"configMap": {"name": "templates"}},
        {"secret": {"secretName": "certificates"}},
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
)
POD = st.fixed_dictionaries(
    {},
    optional={
        "labels": LABELS,
        "annotations": st.dictionaries(
            st.sampled_from(["a", "cluster-autoscaler.kubernetes.io/safe-to-evict"]), st.text(max_size=5)
        ),
        "nodeSelector": LABELS,
        "tolerations": st.lists(TOLERATIONS, max_size=3),
        "affinity": st.just(AFFINITY),
        "topologySpreadConstraints": st.lists(
            st.fixed_dictionaries(
                {
                    "topologyKey": st.sampled_from(["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
                    "maxSkew": st.integers(1, 3),
                    "whenUnsatisfiable": st.just("DoNotSchedule"),
                },
                optional={"minDomains": st.integers(1, 3)},
            ),
            max_size=2,
            unique_by=lambda spread: spread["topologyKey"],
        ),
        "priorityClassName": st.just("high"),
        "runtimeClassName": st.just("nvidia"),
        "schedulerName": st.just("volcano"),
        "serviceAccountName": NAMES,
        "imagePullSecrets": st.lists(
            st.fixed_dictionaries({"name": NAMES}), min_size=1, max_size=2, unique_by=lambda one: one["name"]
        ),
        "runAsUser": st.sampled_from([1, 1000, 2**31 - 1]),
        "fsGroup": st.sampled_from([1, 1000, 2**31 - 1]),
        "resourceClaims": st.just([{"name": "channel", "resourceClaimName": "c"}]),
        "volumes": st.dictionaries(st.sampled_from(["a", "run", "tmp", "shm"]), VOLUMES, max_size=4).map(
            lambda volumes: [{"name": name} | volume for name, volume in volumes.items()]
        ),
    },
)
LORA = st.fixed_dictionaries(
    {
        "adapters": st.dictionaries(st.sampled_from(["x", "org/y"]), URIS, min_size=1).map(
            lambda uris: [{"name": name, "uri": uri} for name, uri in uris.items()]
        )
    },
)
STORAGE = st.fixed_dictionaries(
    {},
    optional={
        "cache": st.just({"persistentVolumeClaim": {"claimName": "compiled"}}),
        "hub": st.just({"persistentVolumeClaim": {"claimName": "downloads"}}),
        "sharedMemory": SIZES,
    },
)
ACCELERATORS = st.sampled_from(
    [
        {},
        {"type": "None"},
        {"resource": "amd.com/gpu"},
        {"resource": "nvidia.com/mig-1g.10gb", "perRank": 2},
        {"type": "Claims", "claims": [{"name": "gpus", "resourceClaimTemplateName": "one-gpu"}]},
    ]
)
FIELDS = st.fixed_dictionaries(
    {"model__uri": URIS},
    optional={
        "model__servedName": st.sampled_from(["a", "org/model"]),
        "engine__accelerator": ACCELERATORS,
        "engine__apiKeySecretKeyRef": SECRETS,
        "engine__version": st.just("0.32.0"),
        "engine__args": st.lists(
            st.sampled_from(["--enforce-eager", "--max-logprobs=3", "--seed=7"]), max_size=64
        ),
        "engine__env": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["OMP_NUM_THREADS", "HF_HUB_VERBOSITY", "APP_A", "TZ"]),
                    "value": st.just("x"),
                }
            ),
            unique_by=lambda variable: variable["name"],
        ),
        "parallelism": st.sampled_from([{"tensor": 128}, {"tensor": 2, "nodes": 2}])
        | st.fixed_dictionaries(
            {"tensor": st.integers(1, 8), "pipeline": st.integers(1, 4), "data": st.integers(1, 3)}
        ),
        "guidedDecoding__placement": st.sampled_from(["Rank", "Scheduler"]),
        "guidedDecoding__backend": st.sampled_from(["Auto", "XGrammar", "Guidance"]),
        "speculative": SPECULATIVE,
        "replicas": st.integers(0, 10_000),
        "networkPolicy": st.sampled_from([{}, {"allowFrom": [{"podLabels": {"app": "gateway"}}]}]),
        "rollout": st.sampled_from([{"maxSurge": "25%", "maxUnavailable": 0}, {"paused": True}]),
        "drain": st.just({"timeout": "90s"}),
        "resources": RESOURCES,
        "sidecar__resources": RESOURCES,
        "lora": LORA,
        "storage": STORAGE,
        "pod": POD,
        "telemetry": st.just({})
        | st.just({"metrics": {"labels": {"release": "x"}}})
        | st.just({"endpoint": "http://c:4318"}),
    },
)


def is_taken(fields: dict[str, Any]) -> bool:
    """Say whether the rules across fields hold."""
    speculative, parallelism = fields.get("speculative", {}), fields.get("parallelism", {})
    on_cpu = fields.get("engine__accelerator", {}).get("type") == "None"
    is_staged = parallelism.get("pipeline", 1) > 1
    if speculative.get("method") == "DraftModel" and is_staged:
        return False
    if speculative.get("method") == "NGram" and speculative.get("asyncScheduling") == "On" and on_cpu:
        return False
    if speculative.get("verification") == "Adaptive" and (is_staged or on_cpu or fields.get("lora")):
        return False
    by_load = speculative.get("numTokens") == "Auto"
    if by_load and ("disableAbove" in speculative or speculative.get("verification") == "Adaptive"):
        return False
    return not (by_load or "disableAbove" in speculative) or parallelism.get("data", 1) == 1


FIELDS = FIELDS.filter(is_taken)
MODELS = FIELDS.map(lambda fields: parse(changed(minimal(), **fields)))

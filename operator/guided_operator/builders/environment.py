"""The environment of engine and sidecar. A variable that the user sets wins over ours of the same name."""

from math import floor
from typing import Final
from urllib.parse import urlsplit

from guided_contract import names
from guided_operator.api import GuidedModel, words
from guided_operator.api.base import SecretKey
from guided_operator.api.engine import EnvVar
from guided_operator.api.quantity import amount
from guided_operator.builders.configuration import collector
from guided_operator.builders.objects import Object, is_grouped
from guided_operator.builders.pod_paths import CACHE, HOME, HUB, PLUGIN_DIR, Site
from guided_operator.builders.source import compile_cache, downloads

# A connection that a client is about to use must not be closed meanwhile: longer than clients and gateways
# keep an idle one, which is 60 s and less. vLLM's 5 s are less than they take, and a request is lost by it.
_KEEP_ALIVE_S: Final = 75
# A vLLM image asks for all NVIDIA GPUs of the node by itself, which some container runtimes obey. NVIDIA's
# device plugin says which ones instead; its driver for claims sets this, too.
_NO_NVIDIA: Final = {"NVIDIA_VISIBLE_DEVICES": "void"}
# What the engine compiles, by variable and folder of the claim that keeps it; DeepGEMM's is below vLLM's.
COMPILE_CACHES: Final = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "CUDA_CACHE_PATH": "cuda",
}
_PROXIES: Final = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}
_EXCEPT: Final = {"NO_PROXY", "no_proxy"}
_SAME_POD: Final = ("localhost", "127.0.0.1")


def engine_environment(gm: GuidedModel, site: Site) -> list[Object]:
    """Return the engine container's variables."""
    variables = _shared(gm, site)
    variables["VLLM_NO_USAGE_STATS"] = "1"  # a pod tells nobody outside about itself unless asked to
    variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = str(_KEEP_ALIVE_S)
    if compile_cache(gm, site) is not None:
        variables |= {name: f"{CACHE}/{folder}" for name, folder in COMPILE_CACHES.items()}
    if gm.spec.engine.accelerator.type == "None":
        variables |= _cpu(gm)
    if not any(name.startswith("nvidia.com/") for name in gm.spec.engine.accelerator.resource_of(1)):
        variables |= _NO_NVIDIA
    merged = _merged(gm, variables, gm.spec.engine.env)
    if is_grouped(gm):
        # Where the others' ranks find this node's; vLLM's own guess is the way to the internet.
        own = {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        merged = [own, *(each for each in merged if each["name"] != own["name"])]
    return merged


def sidecar_environment(gm: GuidedModel, site: Site) -> list[Object]:
    """Return the sidecar container's variables: it loads the tokenizer as the engine does, and no GPU."""
    variables = _shared(gm, site) | _NO_NVIDIA
    theirs = [
        env
        for env in gm.spec.engine.env
        if env.name.startswith("HF_") or env.name in (*words.WAY_TO_THE_HUB, *words.TELEMETRY)
    ]
    return _merged(gm, variables, theirs)


def _way(gm: GuidedModel, variables: list[EnvVar]) -> list[EnvVar]:
    """Return the user's variables, by which no proxy stands between engine, sidecar and collector."""
    endpoint = collector(gm)
    direct = (*_SAME_POD, *([urlsplit(endpoint).hostname or ""] if endpoint is not None else []))
    found = {variable.name: variable for variable in variables}
    if not _PROXIES.isdisjoint(found):
        for name in _EXCEPT & found.keys() or ("NO_PROXY",):
            said = found.get(name, EnvVar(name=name, value=""))
            if said.value is not None and said.value != "*":
                value = ",".join(filter(None, (said.value, *direct)))
                found[name] = EnvVar(name=name, value=value)
    return list(found.values())


def _shared(gm: GuidedModel, site: Site) -> dict[str, str]:
    variables = {names.ENV_CONFIG: site.config_path, "PYTHONUNBUFFERED": "1"}
    endpoint = collector(gm)
    if endpoint is not None and site.otlp_endpoint is None:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint.rstrip("/").removesuffix("/v1/traces")
    if site.in_cluster:
        # The user of the pod has no entry in the image's passwd: without USER, torch fails to name its cache.
        variables |= {"PYTHONPATH": PLUGIN_DIR, "HOME": HOME, "USER": "guidedmodel"}
    if not downloads(gm):
        variables["HF_HUB_OFFLINE"] = "1"
        return variables
    if site.in_cluster:
        variables["HF_HOME"] = HUB
    if site.hub_endpoint:
        variables["HF_ENDPOINT"] = site.hub_endpoint
    return variables


def _cpu(gm: GuidedModel) -> dict[str, str]:
    ranks = gm.spec.parallelism.ranks
    resources = gm.spec.resources
    cpu = resources.limits.get("cpu") or resources.requests.get("cpu")
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB for each rank
    if ranks > 1 or gm.spec.parallelism.nodes > 1:
        # vLLM's own choice (auto) wants a NUMA node per rank and refuses to start without.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    if cpu is not None or ranks > 1:
        # Otherwise each rank starts a thread per CPU of the node, whatever the pod may use.
        variables["OMP_NUM_THREADS"] = str(max(1, floor(amount(cpu or "1") / ranks)))
    return variables


def _merged(gm: GuidedModel, ours: dict[str, str], theirs: list[EnvVar]) -> list[Object]:
    merged: dict[str, Object] = {name: {"name": name, "value": value} for name, value in ours.items()}
    # Engine and sidecar get both: the sidecar reads the hub, and asks the engine.
    secrets = {
        names.ENV_HUB_TOKEN: gm.spec.model.auth_secret_key_ref,
        names.ENV_API_KEY: gm.spec.engine.api_key_secret_key_ref,
    }
    merged |= {name: _from_secret(name, key) for name, key in secrets.items() if key is not None}
    for each in _way(gm, theirs):
        own = {"name": each.name, "value": each.value}
        merged[each.name] = (
            own if each.value_from is None else _from_secret(each.name, each.value_from.secret_key_ref)
        )
    return list(merged.values())


def _from_secret(name: str, key: SecretKey) -> Object:
    return {"name": name, "valueFrom": {"secretKeyRef": {"key": key.key, "name": key.name}}}

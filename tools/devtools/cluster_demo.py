"""`make cluster`: GuidedModel on a real one-node Kubernetes on this machine, or on the one that kubectl has.

CLUSTER=existing takes the current kubeconfig instead of starting a node. IMAGE then names our image, pushed
where that cluster finds it, and manifests/samples/models/tiny.yaml has to have filled its claim in `default`.
A cluster that pulls from a registry of its own gets copies of the sample and of
manifests/observability/jaeger.yaml with its images in them: SAMPLE=FILE and JAEGER=FILE.
"""

import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from devtools import cache, chart, cluster, deploy, golang, image, node_init, venvs
from devtools.kubectl import Kubectl, KubectlError
from devtools.process import StartError

T = TypeVar("T")
REQUEST_TIMEOUT_S = 120.0
TRACE_TIMEOUT_S = 60.0
OBSERVABILITY = node_init.JAEGER
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["name", "age", "note"],
    "additionalProperties": False,
}


def main() -> None:
    """Bring everything up, show that it works, and say how to go on."""
    existing = os.environ.get("CLUSTER") == "existing"
    try:
        kubectl, done = _existing() if existing else _own()
        took = _progress("waiting until the model is Ready", lambda: deploy.wait_ready(kubectl, "tiny", 600))
        print(f"cluster: Ready {took:.0f} s after it was applied", flush=True)  # noqa: T201 - the command's output
        _show(kubectl)
    except (golang.MissingToolError, StartError, KubectlError, chart.HelmError) as error:
        sys.exit(f"cluster: {error}")
    print(done)  # noqa: T201 - the command's output


def _own() -> tuple[Kubectl, str]:
    """Start a node, unless one runs, and put everything on it."""
    folder = cache.root() / "cluster"
    venv = _progress("building the engine's environment", venvs.engine)
    models = _progress("building the tiny model", deploy.models)
    started = cluster.running(folder)
    if started is None:
        shutil.rmtree(folder, ignore_errors=True)
        mounts = [(venv, image.ENGINE_ENV)]
        started = _progress("starting a node", lambda: cluster.start(folder, mounts, outlives_us=True))
    running = started
    kubectl = Kubectl(running.kubeconfig)
    _progress("building the image and installing the chart", lambda: deploy.install(running))
    deploy.create_jaeger(kubectl)
    deploy.create_models(kubectl, models)
    kubectl.apply(deploy.sample())
    lines = (
        "",
        f"export KUBECONFIG={running.kubeconfig}",
        f"Jaeger's query API: {running.jaeger_url}/api/traces?service=tiny",
        "`make cluster-down` removes everything.",
    )
    return kubectl, "\n".join(lines)


def _existing() -> tuple[Kubectl, str]:
    kubectl = Kubectl(None)
    image = os.environ.get("IMAGE")
    sample = Path(os.environ.get("SAMPLE") or deploy.SAMPLE)
    jaeger = Path(os.environ.get("JAEGER") or OBSERVABILITY)
    if not image:
        raise golang.MissingToolError(
            "CLUSTER=existing needs IMAGE=REGISTRY/NAME:TAG, built from the Dockerfile"
        )
    try:
        kubectl.run("get", "persistentvolumeclaim/models", "--namespace=default")
    except KubectlError as error:
        raise KubectlError(f"apply manifests/samples/models/tiny.yaml first: {error}") from error
    _progress("installing the chart", lambda: chart.install(deploy.NAMESPACE, image))
    kubectl.run("apply", f"--filename={jaeger}")
    kubectl.run("rollout", "status", "deployment/jaeger", "--namespace=observability", "--timeout=110s")
    kubectl.run("apply", f"--filename={sample}", "--namespace=default")
    undo = (
        "",
        "To remove everything:",
        "kubectl delete guidedmodel/tiny --namespace=default",
        f"helm uninstall guidedmodel --namespace={deploy.NAMESPACE}",
        "kubectl delete namespace/observability",
    )
    return kubectl, "\n".join(undo)


def _show(kubectl: Kubectl) -> None:
    """Send one guided request to the pod and find its trace."""
    body = {
        "model": "tiny",
        "prompt": "Give me the JSON record for alice\n",
        "max_tokens": 120,
        "temperature": 0,
        "structured_outputs": {"json": SCHEMA},
    }
    began = time.time()
    with kubectl.forwarded("service/tiny", 8000) as url:
        answer = _call(f"{url}/v1/completions", body)
    text = answer["choices"][0]["text"]
    print(f"cluster: the pod answered {json.dumps(json.loads(text), ensure_ascii=False)}")  # noqa: T201 - output
    own = cluster.load(cache.root() / "cluster") if kubectl.kubeconfig else None
    if own:
        spans = _find_trace(own.jaeger_url, began)
    else:
        with kubectl.forwarded("service/jaeger", node_init.JAEGER_QUERY_PORT, "observability") as url:
            spans = _find_trace(url, began)
    print("\n".join(["cluster: its trace in Jaeger", *_tree(spans)]))  # noqa: T201 - the command's output


def _find_trace(url: str, began_s: float) -> list[dict[str, Any]]:
    """Return the spans of the first whole trace since a moment: vLLM's own span is in it, and all above it.

    Each process exports its own spans, when it comes to it.
    """
    query = {"service": "tiny", "start": int(began_s * 1e6), "end": int((began_s + 600) * 1e6), "limit": 20}
    deadline = time.monotonic() + TRACE_TIMEOUT_S
    found: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        found = _call(f"{url}/api/traces?{urllib.parse.urlencode(query)}")["data"] or []
        for trace in found:
            spans: list[dict[str, Any]] = trace["spans"]
            if any("llm_request" in line for line in _tree(spans)):
                return spans
        time.sleep(0.5)
    there = sorted(span["operationName"] for trace in found for span in trace["spans"])
    raise StartError(
        f"no whole trace of the request is in Jaeger after {TRACE_TIMEOUT_S:.0f} s; spans: {', '.join(there)}"
    )


def _tree(spans: list[dict[str, Any]], parent: str | None = None, indent: str = "  ") -> list[str]:
    """Return the spans below one, each in a line under its parent."""
    lines = []
    for span in sorted(spans, key=lambda one: int(one["startTime"])):
        above = next((reference["spanID"] for reference in span["references"]), None)
        if above == parent:
            lines.append(f"{indent}{span['operationName']}  {span['duration'] / 1000:.1f} ms")
            lines += _tree(spans, span["spanID"], indent + "  ")
    return lines


def _call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - http
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:  # noqa: S310 - as above
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        raise StartError(f"{url} answered {error.code}: {error.read().decode(errors='replace')}") from error


def _progress(what: str, work: Callable[[], T]) -> T:
    """Say what is done before it is, and how long it took if that is worth a word."""
    print(f"cluster: {what}", flush=True)  # noqa: T201 - progress
    began = time.monotonic()
    done = work()
    if (took := time.monotonic() - began) > 1:
        print(f"cluster: took {took:.0f} s", flush=True)  # noqa: T201 - progress
    return done


if __name__ == "__main__":
    main()

"""`guidedmodel status`, and `kubectl gm status`: how models are, and what to do next."""

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import urllib3
import yaml
from kubernetes import client, config

from guided_contract import names as contract
from guided_operator.cli import advice

Object = Mapping[str, Any]
READY: Final = 0
NOT_READY: Final = 1
UNREADABLE: Final = 2
_TIMEOUT_S: Final = 30.0
_OF_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))


class UnreadableError(Exception):
    """The models cannot be read; the message, one line, says why."""


def main(
    names: Sequence[str],
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    *,
    all_namespaces: bool,
) -> int:
    """Print how the models are; return 0 if all are ready, 1 if one is not, 2 if that cannot be told."""
    try:
        here = _connect(kubeconfig, context)
        namespace = "" if all_namespaces else namespace or here
        models = _models(namespace, names)
    except UnreadableError as error:
        click.echo(f"guidedmodel: {error}", err=True)
        return UNREADABLE
    texts = (text(model, dt.datetime.now(dt.UTC)) for model in models)
    if models:
        click.echo("\n\n".join(texts))
    missing = sorted(set(names) - {model["metadata"]["name"] for model in models})
    for name in missing:
        click.echo(f"guidedmodel: there is no GuidedModel {namespace or '*'}/{name}", err=True)
    if not models and not names:
        click.echo(f"there are no GuidedModels in {namespace or 'any namespace'}", err=True)
    return UNREADABLE if missing else READY if all(map(is_ready, models)) else NOT_READY


def _connect(kubeconfig: str | None, context: str | None) -> str:
    """Configure Kubernetes' client as kubectl does; return the namespace that it means."""
    files = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    exists = any(os.path.isfile(os.path.expanduser(each)) for each in files.split(os.pathsep))  # noqa: PTH111, PTH113 - Path's raise of odd names
    is_in_pod = not exists and not kubeconfig and "KUBERNETES_SERVICE_HOST" in os.environ
    if not exists and not is_in_pod:
        raise UnreadableError(
            f"there is no kubeconfig {_told(files)}: name one by --kubeconfig or KUBECONFIG"
        )
    settings = client.Configuration()
    settings.retries = False
    try:
        if is_in_pod:
            config.load_incluster_config(client_configuration=settings)
            found = _OF_POD.read_text().strip()
        else:
            config.load_kube_config(files, context, settings, persist_config=False)
            contexts, current = config.list_kube_config_contexts(files)
            chosen = next(each for each in contexts if each["name"] == (context or current["name"]))
            found = str(chosen["context"].get("namespace") or "default")
    except Exception as error:  # a kubeconfig is anything, and what the client makes of it any error
        raise UnreadableError(f"the kubeconfig {files} cannot be used: {_told(error)}") from error
    client.Configuration.set_default(settings)
    return found


def _models(namespace: str, names: Sequence[str]) -> list[Object]:
    """Return the models of a namespace ("": of all), or those of these names, by namespace and name."""
    api = client.CustomObjectsApi()
    # Of one model alone, so that rights to that one are enough.
    options = {"field_selector": f"metadata.name={names[0]}"} if len(names) == 1 else {}
    where = (namespace,) if namespace else ()
    ask = api.list_namespaced_custom_object if namespace else api.list_cluster_custom_object
    try:
        answer = ask(
            contract.API_GROUP,
            contract.API_VERSION,
            *where,
            contract.PLURAL,
            _request_timeout=_TIMEOUT_S,
            **options,
        )
    except client.ApiException as error:
        if error.status == 404:
            why = "this cluster has no GuidedModel API: install the operator first"
        else:
            why = f"the API server answers {error.status} {error.reason}: {_told(error.body)}"
        raise UnreadableError(why) from error
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise UnreadableError(f"the API server does not answer: {_told(error)}") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("items"), list):
        raise UnreadableError("what answers is no API server: no list of GuidedModels")
    models = [each for each in answer["items"] if not names or each["metadata"]["name"] in names]
    return sorted(models, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))


def is_ready(model: Object) -> bool:
    """Say whether a model is Ready, and that of the spec as it is now."""
    found = _ready(model)
    generation = model["metadata"].get("generation", 0)
    return found.get("status") == "True" and bool(found.get("observedGeneration", 0) >= generation)


def _ready(model: Object) -> Object:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def text(model: Object, now: dt.datetime) -> str:
    """Return what people read: conditions as a table, the rest of the status as it is, what to do next."""
    return "\n".join(_lines(model, now))


def _lines(model: Object, now: dt.datetime) -> Iterator[str]:
    metadata, status = model["metadata"], dict(model.get("status") or {})
    yield f"GuidedModel {metadata['namespace']}/{metadata['name']}: {_summary(model)}"
    rows = [
        (
            each.get("type", ""),
            each.get("status", ""),
            each.get("reason", ""),
            _age(each.get("lastTransitionTime"), now),
            _plain(each.get("message", "")),
        )
        for each in status.pop("conditions", None) or ()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from (
        "  ".join(cell.ljust(width) for cell, width in zip(("", *row), (0, *widths), strict=True)).rstrip()
        for row in rows
    )
    if status:
        yield "status:"
        rest = yaml.safe_dump(status, sort_keys=False, allow_unicode=True, width=110)
        yield from (f"  {line}" for line in rest.splitlines())
    yield "next:"
    yield from (f"  {step}" for step in advice.steps(model) or ["nothing to do"])


def _summary(model: Object) -> str:
    if "deletionTimestamp" in model["metadata"]:
        return "being deleted"
    return "ready" if is_ready(model) else f"not ready, {_ready(model).get('reason', '')}".rstrip(", ")


def _age(stamp: Any, now: dt.datetime) -> str:
    """Return how long ago a time was, in the largest unit that is not 0."""
    try:
        past_s = max(int((now - dt.datetime.fromisoformat(stamp)).total_seconds()), 0)
    except (TypeError, ValueError):
        return "?"
    return next((f"{past_s // unit_s}{unit}" for unit_s, unit in _UNITS if past_s >= unit_s), f"{past_s}s")


def _told(error: object) -> str:
    """Return what an error says, in a line that a terminal can take."""
    text = _plain(str(error)) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


def _plain(text: str) -> str:
    """Return a text without its ends of lines, and without what a terminal would obey."""
    return "".join(filter(str.isprintable, " ".join(text.split())))

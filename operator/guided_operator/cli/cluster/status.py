"""`guidedmodel status`, and `kubectl gm status`: how models are, and what to do next."""

import asyncio
import datetime as dt
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import yaml

from guided_operator.cli import arguments
from guided_operator.cli.cluster import advice, answers, pages
from guided_operator.cli.cluster.connection import Connection, NoClusterError, connected
from guided_operator.cli.cluster.pages import Pages
from guided_operator.cli.cluster.tree import is_ready, tree
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError, ObjectNotFound, ServerUnavailable, WatchExpired

Object = dict[str, Any]
READY: Final = 0
NOT_READY: Final = 1
UNREADABLE: Final = 2
_WATCH_S: Final = 290.0  # below the 5 minutes after which API servers, and proxies, may end a request
_AGAIN_S: Final = 2.0
_CLEAR: Final = "\x1b[2J\x1b[H"


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for; None: what the kubeconfig says."""

    names: Sequence[str]
    namespace: str | None
    all_namespaces: bool
    output: Literal["tree", "json", "yaml"]
    watch: bool
    context: str | None
    kubeconfig: str | None


def main(**asked: Any) -> int:
    """Print how the models are; return 0 if all are ready, 1 if one is not, 2 if that cannot be told."""
    options = Options(**asked)
    shown = _Shown(options)
    try:
        asyncio.run(_show(options, shown))
    except KeyboardInterrupt:
        return shown.status
    except (NoClusterError, ApiError) as error:
        sys.stderr.write(f"{arguments.program()}: {error}\n")
        return UNREADABLE
    return shown.status


class _Shown:
    """What is printed, in the format asked for; `status` is the exit status that it deserves."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._last = ""
        self.status = UNREADABLE

    def show(self, shown: Sequence[tuple[Object, Pages]], missing: Sequence[str]) -> None:
        """Print the models, with the pages that were read, unless nothing has changed since the last time."""
        models = [model for model, _ in shown]
        text = _FORMATS[self._options.output](shown)
        lines = [text, *(f"there is no GuidedModel {each}" for each in missing)]
        whole = "\n".join(line for line in lines if line)
        self.status = UNREADABLE if missing else READY if all(map(is_ready, models)) else NOT_READY
        if whole != self._last:
            clear = self._options.watch and self._options.output == "tree" and sys.stdout.isatty()
            if text:
                print(f"{_CLEAR if clear else ''}{text}", flush=True)
            for each in missing:
                sys.stderr.write(f"{arguments.program()}: there is no GuidedModel {each}\n")
        self._last = whole


async def _show(options: Options, shown: _Shown) -> None:
    async with connected(options.kubeconfig, options.context) as cluster:
        namespace = "" if options.all_namespaces else options.namespace or cluster.namespace
        async for found in _states(cluster, namespace, options):
            models = [found[key] for key in sorted(found) if not options.names or key[1] in options.names]
            there = {model["metadata"]["name"] for model in models}
            missing = [f"{namespace or '*'}/{name}" for name in options.names if name not in there]
            if not models and not missing:
                sys.stderr.write(f"there are no GuidedModels in {namespace or 'any namespace'}\n")
            shown.show([(model, await _pages(cluster, model, options)) for model in models], missing)


async def _pages(cluster: Connection, model: Object, options: Options) -> Pages:
    """Return the pages of a model's pods where it was asked for by name and its status does not tell all."""
    is_asked = bool(options.names) and pages.has_more(model)
    return await pages.read(cluster.api, model) if is_asked else Pages()


_Found = Mapping[tuple[str, str], Object]


async def _states(cluster: Connection, namespace: str, options: Options) -> AsyncIterator[_Found]:
    """Yield the models by namespace and name: once, or with --watch after every change, for ever."""
    path = kinds.model_path(namespace, "")
    # Of one model alone, so that rights to that one are enough.
    selector = {"fieldSelector": f"metadata.name={options.names[0]}"} if len(options.names) == 1 else {}
    while True:
        try:
            listed = await cluster.api.read(path, params=selector)
            found = {_key(item): item for item in answers.models_of(listed)}
            yield found
            if not options.watch:
                return
            since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            async for event in cluster.api.watch(path, params=selector | since, timeout_s=_WATCH_S):
                model = answers.model_of(event)
                if model is None:
                    break  # the version is too old: list again
                found.pop(_key(model), None)
                if event["type"] != "DELETED":
                    found[_key(model)] = model
                yield found
        except ObjectNotFound as error:
            raise NoClusterError("this cluster has no GuidedModel API: install the operator first") from error
        except WatchExpired:
            continue
        except ServerUnavailable as error:
            if not options.watch:
                raise
            sys.stderr.write(f"{arguments.program()}: {error}; again in {_AGAIN_S:.0f} s\n")
            await asyncio.sleep(_AGAIN_S)


def _key(model: Object) -> tuple[str, str]:
    return model["metadata"]["namespace"], model["metadata"]["name"]


def report(model: Object, found: Pages) -> Object:
    """Return what programs read: whether the model is ready, its status, its pods' pages, what to do next."""
    metadata = model["metadata"]
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "ready": is_ready(model),
        "generation": metadata["generation"],
        "status": model.get("status") or {},
        "pages": {
            pod: {"error": page} if isinstance(page, str) else msgspec.to_builtins(page)
            for pod, page in found.of_pods.items()
        },
        "next": advice.steps(model),
    }


def _as_tree(shown: Sequence[tuple[Object, Pages]]) -> str:
    now = dt.datetime.now(dt.UTC)
    return "\n\n".join(tree(model, now, found) for model, found in shown)


def _as_json(shown: Sequence[tuple[Object, Pages]]) -> str:
    return json.dumps({"models": [report(*each) for each in shown]}, indent=2)


def _as_yaml(shown: Sequence[tuple[Object, Pages]]) -> str:
    found = {"models": [report(*each) for each in shown]}
    text: str = yaml.safe_dump(found, sort_keys=False, explicit_start=True, allow_unicode=True)
    return text.rstrip("\n")


_FORMATS: Final = {"tree": _as_tree, "json": _as_json, "yaml": _as_yaml}

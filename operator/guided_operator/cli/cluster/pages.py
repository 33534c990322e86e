"""The status pages of a model's pods, through the API server: what the status has no room for."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from guided_contract import names, status
from guided_contract.status import PodStatus
from guided_operator.cli.cluster import answers
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ApiError
from guided_operator.kube.apiserver import ApiServer
from guided_operator.watch.page_fetch import MAX_PAGE_BYTES

Object = Mapping[str, Any]
_TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Pages:
    """The page of each pod by its name, or why there is none; `error`: why no pods could be listed."""

    of_pods: Mapping[str, PodStatus | str] = field(default_factory=dict)
    error: str = ""


def has_more(model: Object) -> bool:
    """Say whether there are pods, or ranks that are missing or disagreed, that the status only counts."""
    told = model.get("status") or {}
    pods, ranks = told.get("pods") or {}, told.get("ranks") or {}
    is_short = len(pods.get("worst") or ()) < pods.get("total", 0)
    return bool(is_short or is_cut(ranks, ranks.get("worst") or ()))


def is_cut(counts: Object, ranks: Any) -> bool:
    """Say whether some of the ranks that are missing, or disagreed, are counted and not listed."""
    missing = sum(rank.get("state") == "Missing" for rank in ranks)
    desynced = sum(rank.get("desyncs", 0) > 0 for rank in ranks)
    return bool(missing < counts.get("missing", 0) or desynced < counts.get("desynced", 0))


async def read(api: ApiServer, model: Object) -> Pages:
    """Return the pages of all of a model's pods; it takes the right to list pods and to get pods/proxy."""
    metadata = model["metadata"]
    path = kinds.POD.path(metadata["namespace"], "")
    selector = {"labelSelector": f"{names.LABEL_NAME}={metadata['name']}"}
    try:
        pods = answers.names_of(await api.read(path, params=selector, metadata_only=True))
    except ApiError as error:
        return Pages(error=str(error))
    free = asyncio.Semaphore(_AT_ONCE)

    async def page(pod: str) -> PodStatus | str:
        try:
            async with free:
                text = await api.fetch(
                    f"{path}/{pod}:{names.SIDECAR_PORT}/proxy/status",
                    timeout_s=_TIMEOUT_S,
                    most_bytes=MAX_PAGE_BYTES,
                )
            return status.decode(text)
        except (ApiError, ValueError) as error:  # it may quote the pod
            return "".join(filter(str.isprintable, str(error)))

    return Pages(dict(zip(sorted(pods), await asyncio.gather(*map(page, sorted(pods))), strict=True)))

"""ConfigMaps that GuidedModels' grammars are in: read in each pass, and nothing of them is kept."""

from collections.abc import Collection, Mapping
from typing import Any

from guided_contract import grammar_files
from guided_operator.builders.grammars import Sources
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectNotFound
from guided_operator.kube.apiserver import ApiServer

Object = dict[str, Any]


async def read(api: ApiServer, namespace: str, wanted: Mapping[str, Collection[str]]) -> Sources:
    """Return these keys of ConfigMaps; those that have no room beside the others are None."""
    room = grammar_files.MAX_BYTES
    found: dict[str, Mapping[str, str | None] | None] = {}
    for name, keys in sorted(wanted.items()):  # one by one: each may have a megabyte
        item = await config_map(api, namespace, name)
        if item is None:
            found[name] = None
            continue
        data: Mapping[str, str] = item.get("data") or {}
        kept = found[name] = dict[str, str | None]()
        for each in sorted(data.keys() & keys):
            size = len(data[each].encode())
            kept[each] = data[each] if size <= room else None
            room -= size if size <= room else 0
    return found


async def config_map(api: ApiServer, namespace: str, name: str) -> Object | None:
    """Return a ConfigMap, None if there is none."""
    try:
        return await api.read(kinds.CONFIG_MAP.path(namespace, name))
    except ObjectNotFound:
        return None

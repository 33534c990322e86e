"""The in-memory fake of the operator's `Api`: objects by path, versions, faults on demand."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from guided_operator.kube.api_errors import (
    AlreadyExists,
    ApiError,
    ObjectNotFound,
    WriteConflict,
)
from guided_operator.kube.apiserver import PatchType
from guided_operator.kube.kinds import BY_NAME, CHILDREN, MODEL, REPLICA_SETS

Object = dict[str, Any]
PLURALS = {REPLICA_SETS, *(kind.plural for kind in (MODEL, *CHILDREN))}


class MemoryApi:
    """Attributes: `objects` by path; `writes`, each verb and path; `faults`, raised by the next requests."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[str, str]] = []
        self.faults: list[ApiError] = []
        self._versions = itertools.count(1)
        self._applied: dict[str, Object] = {}

    def children(self) -> dict[str, dict[str, Object]]:
        """Return the children that there are, by kind and name, as the operator's cache keeps them."""
        found: dict[str, dict[str, Object]] = {}
        for path, item in self.objects.items():
            if kind := BY_NAME.get(item["kind"]):
                found.setdefault(kind.name, {})[path.rsplit("/", 1)[1]] = kind.project(item)
        return found

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = 1,
    ) -> Object:
        del params, timeout_s
        self._fail("read", path)
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        if path.rsplit("/", 1)[-1] not in PLURALS:
            raise ObjectNotFound(f"{path} not found", status=404)
        found = [item for key, item in self.objects.items() if key.rsplit("/", 1)[0] == path]
        return {"metadata": {"resourceVersion": str(next(self._versions))}, "items": copy.deepcopy(found)}

    async def create(self, path: str, body: Object, *, timeout_s: float = 1) -> Object:
        del timeout_s
        self._fail("create", path)
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise AlreadyExists("exists", status=409)
        return self._make("create", where, body)

    async def patch(self, path: str, body: Any, *, kind: PatchType, timeout_s: float = 1) -> Object:
        del timeout_s
        self._fail(kind, path)
        if path not in self.objects:
            if kind != "apply":
                raise ObjectNotFound(f"{path} not found", status=404)
            if "uid" in body["metadata"]:
                raise WriteConflict("uid mismatch", status=409)
            return self._make(kind, path, body)
        self.writes.append((kind, path))
        kept = self.objects[path]
        if kind == "json":
            return self._store(path, kept)
        if body["metadata"].get("resourceVersion") not in (None, kept["metadata"]["resourceVersion"]):
            raise WriteConflict("somebody else wrote", status=409)
        uid = kept["metadata"].get("uid")
        if body["metadata"].get("uid", uid) != uid:
            raise WriteConflict("metadata.uid: Invalid value: field is immutable", status=422)
        if kind == "apply":
            kept = without(kept, self._applied.get(path, {}), body)
            self._applied[path] = body
        return self._store(path, merged(kept, body))

    async def delete(self, path: str, *, uid: str, timeout_s: float = 1) -> None:
        del timeout_s
        self._fail("delete", path)
        if self.objects.get(path, {}).get("metadata", {}).get("uid") != uid:
            raise ObjectNotFound("gone", status=404)
        self.writes.append(("delete", path))
        del self.objects[path]

    def _make(self, verb: str, path: str, body: Object) -> Object:
        self.writes.append((verb, path))
        self._applied[path] = body
        given = {"uid": f"uid-{path}", "generation": 1}
        return self._store(path, {**body, "metadata": {**given, **body["metadata"]}})

    def _store(self, path: str, item: Object) -> Object:
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[path] = stored
        return copy.deepcopy(stored)

    def _fail(self, _verb: str, _path: str) -> None:
        if self.faults:
            raise self.faults.pop(0)


def merged(old: Any, new: Any) -> Any:
    """Return a JSON merge."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def without(live: Object, before: Object, now: Object) -> Object:
    """Return what is left of an object where fields that were applied are applied no longer."""
    kept = {key: value for key, value in live.items() if key in now or key not in before}
    for key in kept.keys() & before.keys() & now.keys():
        if all(isinstance(each[key], dict) for each in (kept, before, now)):
            kept[key] = without(kept[key], before[key], now[key])
    return kept

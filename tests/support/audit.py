"""What the API server's audit log says: who asked for what, when, and what came of it."""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from support.cluster import Cluster
from support.operator_process import ACCOUNT, NAMESPACE

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. `credential` tells tokens of one user apart; `went` is when it was answered."""

    user: str
    credential: str
    verb: str
    resource: str
    namespace: str
    code: int
    went: dt.datetime

    @classmethod
    def of(cls, line: dict[str, Any]) -> Self:
        """Read a line."""
        what, user = line.get("objectRef", {}), line["user"]
        return cls(
            user=user.get("username", ""),
            credential=next(iter(user.get("extra", {}).get(_CREDENTIAL, ())), ""),
            verb=line["verb"],
            resource="/".join(filter(None, (what.get("resource"), what.get("subresource")))),
            namespace=what.get("namespace", ""),
            code=line.get("responseStatus", {}).get("code", 0),
            went=dt.datetime.fromisoformat(line["stageTimestamp"]),
        )

    @property
    def is_write(self) -> bool:
        """Whether it was to change something."""
        return self.verb in WRITES

    def __str__(self) -> str:
        return f"{self.went:%H:%M:%S.%f} {self.verb} {self.resource} {self.namespace} {self.code}"


class Audit:
    """The audit log from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.audit_log
        self._begin = self._log.stat().st_size

    def entries(self, user: str = OPERATOR) -> list[Entry]:
        """Return a user's requests that ended since, watches only with their end."""
        return [entry for entry in self._lines() if entry.user == user]

    def writes(self, user: str = OPERATOR) -> list[Entry]:
        """Return a user's requests to change anything but Leases."""
        return [entry for entry in self.entries(user) if entry.is_write and entry.resource != "leases"]

    def _lines(self) -> Iterator[Entry]:
        with self._log.open("rb") as log:
            if self._begin:
                log.seek(self._begin - 1)
                log.readline()  # the rest of what was half written then, most often nothing
            for line in log:
                if line.endswith(b"\n"):  # the last may be half written
                    found = json.loads(line)
                    if found["stage"] == "ResponseComplete":
                        yield Entry.of(found)

"""What one account asked of the API server, from the API server's own audit log."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.operator_process import ACCOUNT, NAMESPACE

USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


def policy() -> dict[str, Any]:
    """Return the policy that writes down this account's requests and nobody else's."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
    }


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `at` is when it came, `answered` when it was done, both in seconds since 1970."""

    verb: str
    resource: str
    code: int
    at: float
    answered: float

    @property
    def is_lease(self) -> bool:
        """Whether it kept the Lease, which costs the same however many models there are."""
        return self.resource == "leases"

    @property
    def is_write(self) -> bool:
        """Whether it asked for a change."""
        return self.verb not in ("get", "list", "watch") and not self.is_lease


def read(log: Path) -> Iterator[Request]:
    """Yield all requests so far; a watch counts when it starts."""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        reference, verb = event.get("objectRef") or {}, event["verb"]
        if event["stage"] != ("ResponseStarted" if verb == "watch" else "ResponseComplete"):
            continue
        resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
        yield Request(
            verb,
            resource,
            event.get("responseStatus", {}).get("code", 0),
            _seconds(event["requestReceivedTimestamp"]),
            _seconds(event["stageTimestamp"]),
        )


def by_verb(requests: Sequence[Request]) -> dict[str, int]:
    """Return how many there were of each verb and resource."""
    return dict(sorted(Counter(f"{each.verb} {each.resource}" for each in requests).items()))


def _seconds(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()

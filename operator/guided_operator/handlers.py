"""What kopf does for us: it watches GuidedModels, and each event rings the queue's bell. Nothing else.

kopf writes nothing: no events are posted, and a handler of raw events needs no finalizer or annotation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import kopf

from guided_contract import names
from guided_operator.queue import Key


def registry(ring: Callable[[Key], None], server: str) -> kopf.OperatorRegistry:
    """Return the handlers, which tell `ring` of each GuidedModel that something happened to.

    `server` is the API server's URL; kopf by itself asks DNS for kubernetes.default.svc, and a cluster
    without DNS, or whose DNS is down, would stay unseen.
    """
    handlers = kopf.OperatorRegistry()

    @kopf.on.event(names.API_GROUP, names.API_VERSION, names.PLURAL, registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
    def changed(namespace: str | None, name: str | None, **_: Any) -> None:
        ring(Key(namespace or "", name or ""))  # a returned value would be written to the object

    @kopf.on.login(registry=handlers)  # type: ignore[untyped-decorator]  # kopf has no types
    def login(**context: Any) -> kopf.ConnectionInfo | None:
        known = kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)
        return known and dataclasses.replace(known, server=server)

    return handlers


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings: read only, and without looking for CRDs and namespaces that it may not see."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True  # who acts is decided by our Lease
    # A watch ends by itself so often, which bounds how long a dead connection goes unnoticed.
    chosen.watching.server_timeout = 150
    chosen.watching.client_timeout = 160
    return chosen

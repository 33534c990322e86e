"""The sidecar container's first process."""

import logging
from typing import Final

from guided_sidecar import service
from guided_sidecar.supervisor import Supervisor

_GRACE_S: Final = (
    5.0  # the service closes its sockets and flushes its spans in it; a pod's own grace is longer
)


def main() -> None:
    """Supervise the service until TERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s sidecar supervisor: %(message)s")
    Supervisor(service.main, _GRACE_S).run()

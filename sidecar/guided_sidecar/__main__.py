"""`python -m guided_sidecar`: the sidecar container's first process."""

import logging
import sys
from typing import Final

from guided_sidecar.supervisor import Supervisor

_GRACE_S: Final = (
    5.0  # the service closes its sockets and flushes its spans in it; a pod's own grace is longer
)


def main() -> None:
    """Supervise the service until TERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s sidecar supervisor: %(message)s")
    Supervisor([sys.executable, "-m", "guided_sidecar.service"], _GRACE_S, has_standby=True).run()


if __name__ == "__main__":
    main()

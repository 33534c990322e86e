"""`python -m guided_sidecar`: the container's first process, which supervises the service until TERM."""

import logging
from typing import Final

from guided_contract import processes

# The service closes its sockets and flushes its spans in it; a pod's own grace is longer.
_GRACE_S: Final = 5.0

if __name__ == "__main__":
    processes.end_on_term()
    processes.raise_file_limit()
    from guided_sidecar import service
    from guided_sidecar.supervisor import Supervisor

    logging.basicConfig(level=logging.INFO, format="%(levelname)s sidecar supervisor: %(message)s")
    Supervisor(service.main, _GRACE_S).run()

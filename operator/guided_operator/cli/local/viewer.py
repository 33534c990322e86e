"""A trace page beside a local pod: arize-phoenix, a container more."""

import shutil
import sys
from pathlib import Path
from typing import Final

from guided_operator.cli.local.pod import Container, PodError, Probe
from guided_operator.cli.local.site import free_port

PROGRAM: Final = "phoenix"


def trace_page(folder: Path, port: int) -> Container:
    """Return what serves the page on a port, with its data in a folder that goes with the pod's.

    Raises
    ------
    PodError
        Its program is neither in this environment nor on PATH.
    """
    found = shutil.which(PROGRAM, path=Path(sys.executable).parent) or shutil.which(PROGRAM)
    if found is None:
        raise PodError(
            f"--viewer needs the program {PROGRAM} of arize-phoenix: pip install 'guidedmodel[viewer]', "
            "or, apart from vLLM's environment: uv tool install arize-phoenix"
        )
    environment = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",  # it tells nobody outside about itself
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    probe = Probe("/healthz", port, period_s=1, timeout_s=5, failures=1)
    return Container("viewer", (found, "serve"), environment, readiness=probe)

"""A trace page beside a local pod: arize-phoenix, a container more, given what the collector gets."""

import contextlib
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Final

from guided_operator.cli.local.pod import Container, Probe
from guided_operator.cli.local.site import free_port
from guided_operator.cli.local.traces import PATH

PROGRAM: Final = "phoenix"
_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 1.0


class ViewerError(Exception):
    """The viewer is not installed; the message says what to do."""


class Viewer:
    """The page, at `url` once its container is ready.

    Raises
    ------
    ViewerError
        Its program is neither in this environment nor on PATH.
    """

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name(PROGRAM)
        found = str(beside) if beside.exists() else shutil.which(PROGRAM)
        if found is None:
            raise ViewerError(
                f"--viewer needs the program {PROGRAM} of arize-phoenix: pip install 'guidedmodel[viewer]', "
                "or, apart from vLLM's environment: uv tool install arize-phoenix"
            )
        self._program, self._port = found, free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def container(self, folder: Path) -> Container:
        """Return what is run, with its data in a folder that goes with the pod's."""
        environment = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self._port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_TELEMETRY_ENABLED": "false",  # it tells nobody outside about itself
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        probe = Probe("/healthz", self._port, _LOOK_S, _TIMEOUT_S, failures=1)
        return Container("viewer", (self._program, "serve"), environment, readiness=probe)

    def take(self, body: bytes) -> None:
        """Pass an export on, or forget it where the page cannot take it."""
        headers = {"Content-Type": "application/x-protobuf"}
        request = urllib.request.Request(f"{self.url}{PATH}", body, headers)  # noqa: S310 - ours
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()  # noqa: S310 - ours

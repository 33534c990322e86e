"""A trace page beside a local pod: arize-phoenix in a process of its own, given what the collector gets."""

import os
import queue
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from guided_operator.cli.local.process import Process, tail
from guided_operator.cli.local.site import free_port

PROGRAM: Final = "phoenix"
START_TIMEOUT_S: Final = 180.0  # 20 s where nothing else runs; the engine starts beside it
STOP_TIMEOUT_S: Final = 10.0
# The page's name for what belongs together.
_PROJECT: Final = "openinference.project.name"
_MOST_WAITING: Final = 256  # exports; they wait while it starts
_POLL_S: Final = 0.5
_ASK_S: Final = 5.0


class ViewerError(Exception):
    """The viewer is not installed, or does not start; the message says what to do."""


def find() -> Path:
    """Return the viewer's program, of this environment or on PATH.

    Raises
    ------
    ViewerError
        It is not installed.
    """
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if found is None:
        raise ViewerError(
            f"--viewer needs the program {PROGRAM} of arize-phoenix: pip install 'guidedmodel[viewer]', or, "
            "apart from vLLM's environment: uv tool install arize-phoenix"
        )
    return Path(found)


class Viewer:
    """A running viewer.

    Parameters
    ----------
    project
        What its page calls the model.
    """

    def __init__(self, process: Process, url: str, project: str) -> None:
        self.url = url
        self._process = process
        self._project = project
        self._stopped = threading.Event()
        self._bodies: queue.Queue[bytes] = queue.Queue(_MOST_WAITING)
        self._sender = threading.Thread(target=self._send_all, name="viewer", daemon=True)
        self._sender.start()

    @classmethod
    def start(cls, program: Path, folder: Path, project: str) -> Self:
        """Start it; does not wait. Its data are below `folder`, which goes if this process dies."""
        data = folder / "viewer"
        data.mkdir()
        port = free_port()
        environment = {
            **os.environ,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_WORKING_DIR": str(data),
            "PHOENIX_TELEMETRY_ENABLED": "false",  # it tells nobody outside about itself
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        command = [str(program), "serve"]
        log = folder / "viewer.log"
        process = Process.start("viewer", command, environment=environment, log=log, folder=folder)
        return cls(process, f"http://127.0.0.1:{port}", project)

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises
        ------
        ViewerError
            It ended, or does not answer in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            ended = self._process.exit_status() is not None
            if ended or time.monotonic() > deadline:
                what = "ended" if ended else f"does not answer after {START_TIMEOUT_S:.0f} s"
                raise ViewerError(f"the trace viewer {what}\n{tail(self._process.log)}")
            time.sleep(_POLL_S)

    def take(self, body: bytes) -> None:
        """Take one export, or forget it: it never holds the collector up."""
        try:
            self._bodies.put_nowait(body)
        except queue.Full:
            return

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self._process.ask_to_stop()
        if not self._process.wait(STOP_TIMEOUT_S):
            self._process.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=_ASK_S) as answer:  # noqa: S310 - ours
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _send_all(self) -> None:
        while not self._stopped.is_set():
            if self._bodies.empty() or not self._answers():
                self._stopped.wait(_POLL_S)
                continue
            self._send(self._bodies.get())

    def _send(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            group.resource.attributes.add(key=_PROJECT).value.string_value = self._project
        request = urllib.request.Request(  # noqa: S310 - ours
            f"{self.url}/v1/traces",
            data=message.SerializeToString(),
            headers={"Content-Type": "application/x-protobuf"},
        )
        try:
            urllib.request.urlopen(request, timeout=_ASK_S).close()  # noqa: S310 - ours
        except (urllib.error.URLError, OSError):
            return

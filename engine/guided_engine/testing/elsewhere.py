"""A call in a process of its own, as another rank is one: Python hashes strings otherwise there."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class NotThereError(Exception):
    """Another process cannot have what is to be called, or what it is to be called with."""


class RaisedThereError(Exception):
    """The call raised in the other process, or ended it; the message says what."""


class Elsewhere:
    """A call that another process makes meanwhile; use as a context manager.

    Parameters
    ----------
    function
        Of a module, returning what JSON can hold.
    arguments
        Of the function.

    Raises
    ------
    NotThereError
        It or they cannot be sent.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            call = pickle.dumps((function, arguments))
        except Exception as error:
            raise NotThereError(str(error)) from error
        self._result = tempfile.TemporaryFile()  # noqa: SIM115 - until __exit__
        own = os.environ.get("PYTHONHASHSEED")
        paths = [path or str(Path.cwd()) for path in sys.path]
        env = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "1" if own == "0" else "0"}
        with tempfile.TemporaryFile() as given:
            given.write(call)
            given.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - Python, and this module
                [sys.executable, "-c", f"from {__name__} import answer; answer()"],
                stdin=given,
                stdout=self._result,
                env=os.environ | env,
            )

    def __enter__(self) -> Self:
        return self

    def result(self) -> Any:
        """Return what the call returned.

        Raises
        ------
        NotThereError
            It could not be made there.
        RaisedThereError
            It raised, or ended the process.
        """
        status = self._process.wait()
        self._result.seek(0)
        lines = self._result.read().splitlines()
        if status or not lines:
            raise RaisedThereError(f"it ended with status {status}")
        kind, said = json.loads(lines[-1])
        if kind == "result":
            return said
        raise (NotThereError if kind == "not there" else RaisedThereError)(said)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._result.close()


def answer() -> None:
    """Make the pickled call that stdin has, and print what came of it."""
    with contextlib.redirect_stdout(sys.stderr):  # what a factory prints
        made = _made()
    print(json.dumps(made))  # noqa: T201 - for whoever started this process


def _made() -> tuple[str, Any]:
    try:
        function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
    except Exception as error:  # noqa: BLE001 - whatever an import raises
        return "not there", f"{type(error).__name__}: {error}"
    try:
        return "result", function(*arguments)
    except Exception as error:  # noqa: BLE001 - the other process is told
        return "error", f"{type(error).__name__}: {error}"

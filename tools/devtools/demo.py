"""`make demo`: real vLLM with GuidedModel on this machine, seven requests, their answers and their traces.

Ends with 0 only if every answer was as it should be. KEEP=1 keeps serving until Ctrl-C.
"""

import contextlib
import itertools
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema

from devtools import tinymodel
from devtools.tinytasks import task

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = ROOT / "manifests/samples/tiny-cpu.yaml"
START_TIMEOUT_S: Final = 600.0  # the sample's own startupTimeout
REQUEST_TIMEOUT_S: Final = 120.0
TRACE_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 90.0
_SERVING: Final = re.compile(r"^serving \S+ at (http://\S+)/v1 ")

COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
PERSON: Final = json.loads(task("person").spec)
FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
TOOL: Final = {"type": "function", "function": {"name": "file_person", "parameters": PERSON}}
BROKEN: Final = {"type": "object", "properties": {"age": {"type": "integr"}}}


class DemoError(Exception):
    """Something was not as the demo promises; the message says what."""


@dataclass(frozen=True, slots=True)
class Show:
    """One request to show. `fields` go into the body; `check` raises DemoError on a wrong answer."""

    title: str
    prompt: str
    fields: dict[str, Any]
    route: str = COMPLETIONS
    is_refused: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """What to send."""
        messages = [{"role": "user", "content": self.prompt}]
        asked = {"messages": messages} if self.route == CHAT else {"prompt": self.prompt}
        return {"model": "tiny", "max_tokens": 200, "temperature": 0, **asked, **self.fields}

    @property
    def spans(self) -> list[str]:
        """What its trace has to show."""
        guided = ["grammar.prepare"] if self.fields else []
        return [f"POST {self.route}", *guided, *([] if self.is_refused else ["llm_request"])]

    def check(self, status: int, text: str) -> list[str]:
        """Return the lines to print of the answer."""
        if self.is_refused:
            error = json.loads(text)["error"]
            if status != 400 or error["code"] != "grammar_invalid":
                raise DemoError(f"{self.title}: expected a 400 grammar_invalid, got {status}: {text}")
            return [f"HTTP {status} {error['code']}: {error['message']}"]
        if status != 200:
            raise DemoError(f"{self.title}: HTTP {status}: {text}")
        choice = json.loads(text)["choices"][0]
        if self.route == COMPLETIONS:
            return [f"{choice['text']!r}{self._validated(choice['text'])}"]
        message = choice["message"]
        if not message["reasoning"]:
            raise DemoError(f"{self.title}: it did not think: {text}")
        told = [f"thinks {message['reasoning']!r}"]
        if "tools" not in self.fields:
            return [*told, f"{message['content']!r}{self._validated(message['content'])}"]
        if [call["function"]["name"] for call in message["tool_calls"]] != ["file_person"]:
            raise DemoError(f"{self.title}: expected one call of file_person: {text}")
        arguments = message["tool_calls"][0]["function"]["arguments"]
        return [*told, f"calls file_person: {arguments!r}{self._validated(arguments)}"]

    def _validated(self, answer: str) -> str:
        if not self.fields:
            return ""
        if pattern := self.fields.get("structured_outputs", {}).get("regex"):
            if not re.fullmatch(pattern, answer):
                raise DemoError(f"{self.title}: {answer!r} does not match {pattern}")
            return f"   matches {pattern}"
        try:
            jsonschema.validate(json.loads(answer), PERSON)
        except (ValueError, jsonschema.ValidationError) as error:
            raise DemoError(f"{self.title}: {answer!r} breaks the schema: {error}") from error
        return "   valid against its schema"


SHOWS: Final = (
    Show("a JSON schema", task("person").prompt("alice"), {"structured_outputs": {"json": PERSON}}),
    Show(
        "a chat, guided after its thinking",
        task("person").prompt("erin"),
        {"response_format": FORMAT},
        CHAT,
    ),
    Show(
        "a forced tool call",
        task("person").prompt("ivy"),
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        CHAT,
    ),
    Show(
        "a regular expression",
        task("code").prompt("bob"),
        {"structured_outputs": {"regex": task("code").spec}},
    ),
    Show("unguided", task("story").prompt("carol"), {}),
    Show(
        "a broken schema",
        task("person").prompt("dan"),
        {"structured_outputs": {"json": BROKEN}},
        is_refused=True,
    ),
    Show(
        "the broken schema again, streaming",
        task("person").prompt("dan"),
        {"structured_outputs": {"json": BROKEN}, "stream": True},
        is_refused=True,
    ),
)


class Server:
    """`guidedmodel run` as a child, its lines shown as they come, its traces kept by id."""

    def __init__(self, models: Path, manifest: Path = SAMPLE) -> None:
        program = Path(sys.executable).with_name("guidedmodel")
        # A home of its own: what an earlier run compiled would not be compiled before your eyes.
        self._home = tempfile.TemporaryDirectory(prefix="guidedmodel-demo-")
        self._child = subprocess.Popen(  # noqa: S603 - our own command line
            [program, "run", "-f", manifest, "--volume", f"models={models}"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"GUIDEDMODEL_HOME": self._home.name},
            start_new_session=True,  # Ctrl-C reaches us alone; we pass it on, once
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = self._child.pid
        self.example = ""  # the curl line that it suggests

    def _read(self) -> None:
        for line in self._child.stdout or ():
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def lines(self, timeout_s: float, wanted: str) -> Iterator[str]:
        """Yield lines as they come, for so long; then, or when the server ended, raise DemoError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise DemoError(f"waited {timeout_s:.0f} s for {wanted}") from None
            if line is None:
                raise DemoError(f"`guidedmodel run` ended with {self._child.wait()}, before {wanted}")
            yield line

    def url(self) -> str:
        """Wait until it serves; return its URL. Everything that it says is printed."""
        lines = self.lines(START_TIMEOUT_S, "the server")
        for line in lines:
            say(f"  {line}")
            if serving := _SERVING.match(line):
                self.example = next(lines)
                say(f"  {self.example}")
                return serving[1]
        raise AssertionError

    def trace(self, trace_id: str) -> list[str]:
        """Wait for the tree of a trace; return its lines."""
        lines = self.lines(TRACE_TIMEOUT_S, f"trace {trace_id}")
        for line in lines:
            if line == f"trace {trace_id}":
                break
        return list(itertools.takewhile(bool, lines))

    def follow(self) -> None:
        """Print what it says until it ends."""
        while (line := self._lines.get()) is not None:
            say(line)

    def stop(self) -> None:
        """End it and everything that it started."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()  # its guard then ends what it started
            self._child.wait()
        self._home.cleanup()


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)  # noqa: T201 - the command's output


def ask(url: str, show: Show) -> tuple[int, str, str]:
    """Send one request; return status, body and the id of its trace."""
    trace_id = secrets.token_hex(16)
    request = urllib.request.Request(  # noqa: S310 - http, to our own server
        f"{url}{show.route}",
        data=json.dumps(show.body).encode(),
        headers={
            "Content-Type": "application/json",
            "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:  # noqa: S310 - see above
            return answer.status, answer.read().decode(), trace_id
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode(), trace_id


def demonstrate(server: Server, url: str, shows: Sequence[Show]) -> None:
    """Send the requests one by one to a server that is ready; print each answer and its trace.

    Raises
    ------
    DemoError
        An answer or trace was not as it should be.
    """
    for number, show in enumerate(shows, 1):
        status, text, trace_id = ask(url, show)
        say(f"\n{number}. {show.title}: {show.prompt!r}")
        told, tree = show.check(status, text), server.trace(trace_id)
        for line in (*told, *tree):
            say(f"   {line}")
        missing = [name for name in show.spans if not any(f"{name} " in line for line in tree)]
        if missing:
            raise DemoError(f"{show.title}: its trace has no {', '.join(missing)}")


def main() -> int:
    """Run the demo; return the exit status: 0 as promised, 1 not."""
    say("demo: the tiny model of tools/devtools/tiny")
    models = tinymodel.thinking()
    say("demo: guidedmodel run -f manifests/samples/tiny-cpu.yaml")
    server = Server(models)
    try:
        demonstrate(server, server.url(), SHOWS)
        if os.environ.get("KEEP") == "1":
            say(f"\ndemo: KEEP=1, serving on until Ctrl-C. Try:\n{server.example}")
            with contextlib.suppress(KeyboardInterrupt):
                server.follow()
    except DemoError as error:
        say(f"demo: {error}")
        return 1
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            server.stop()
    say("\ndemo: everything was as promised, and everything is stopped")
    return 0


if __name__ == "__main__":
    # As Ctrl-C: what runs below has to be stopped then, too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        status = main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)

"""The trace page of `guidedmodel run --viewer` in a browser; `make picture` installs what it needs."""

import json
import os
import secrets
import struct
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from devtools import viewer_env

from guided_operator.cli.local.viewer import PROGRAM
from support import openai
from support.pod import Pod, sample

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

# Where `make picture` wants the picture; without it that test is left out: viewer and browser have 1 GB.
PICTURE = os.environ.get("PICTURE")
SIZE = (1200, 960)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
SPANS = {
    *("POST /v1/completions", "llm_request", "guided.decode"),
    *("grammar.prepare", "grammar.compile", "grammar.proof", "grammar.load"),
}


@pytest.mark.skipif(not PICTURE, reason="takes a picture only for `make picture`")
def test_a_request_is_shown_as_its_tree_of_spans() -> None:
    assert PICTURE
    path = f"{os.environ['PATH']}:{viewer_env.path()}"
    pod = Pod.launch(sample(), args=("--viewer",), env={"PATH": path})
    try:
        pod.wait_ready()
        pod.wait(lambda: pod.find("^traces at "), 180)
        take_picture(pod, Path(PICTURE).absolute())
    finally:
        pod.stop()
    content = Path(PICTURE).read_bytes()
    assert struct.unpack(">II", content[16:24]) == SIZE
    assert 20_000 < len(content) < 200_000


def take_picture(pod: Pod, picture: Path) -> None:
    trace_id = secrets.token_hex(16)
    assert openai.text(openai.guided(pod.url, "JSON record for alice:", "json", SCHEMA, trace_id=trace_id))
    found = pod.find("^traces at (.*)$")
    assert found

    def read(path: str) -> Any:
        with urllib.request.urlopen(f"{found[1]}/v1/projects{path}", timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def spans() -> dict[str, str]:
        told = read("/default/spans?limit=200")
        return {one["name"]: one["id"] for one in told if one["context"]["trace_id"] == trace_id}

    pod.wait(lambda: spans().keys() >= SPANS, 60)
    [project] = [one["id"] for one in read("") if one["name"] == "default"]
    selected = f"selectedSpanNodeId={spans()['guided.decode']}"
    page = f"{found[1]}/projects/{project}/traces/{trace_id}?{selected}"
    expected = {*SPANS, "guidedmodel.decode.exposed.duration"}
    # A browser's first start on a busy machine may be over before the page has asked for everything.
    pod.wait(lambda: all(name in shown for shown in [browse(page, "--dump-dom")] for name in expected), 120)
    browse(page, f"--screenshot={picture}")


def browse(page: str, what: str) -> str:
    """Have a browser without a screen look at a page."""
    program = viewer_env.browser()
    assert program, f"`make picture` installs {viewer_env.BROWSERS[0]}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    window = f"--window-size={SIZE[0]},{SIZE[1]}"
    done = subprocess.run(
        [program, *options, window, "--virtual-time-budget=20000", what, page],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.replace("<wbr>", "")  # where long names may be broken


def test_without_the_program_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    """Runs everywhere: PATH holds nothing, and vLLM's environment has no viewer."""
    pod = Pod.launch(sample(), args=("--viewer",), env={"PATH": str(tmp_path)})
    try:
        assert pod.ended(60) == 2
        assert pod.find(f"--viewer needs the program {PROGRAM} of arize-phoenix: pip install 'guidedmodel")
    finally:
        pod.stop()

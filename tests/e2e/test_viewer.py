"""The trace page of `guidedmodel run --viewer` in a browser; `make picture` installs what it needs."""

import json
import os
import secrets
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools import viewer_env

from guided_operator.cli.local.viewer import PROGRAM
from support import openai
from support.pod import Pod, sample

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

# Where `make picture` wants the picture; without it these tests are left out: viewer and browser have 1 GB.
PICTURE = os.environ.get("PICTURE")
SIZE = (1200, 960)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
# Each span's parent.
TREE = {
    "POST /v1/completions": None,
    "llm_request": "POST /v1/completions",
    "grammar.prepare": "POST /v1/completions",
    "grammar.compile": "grammar.prepare",
    "grammar.proof": "grammar.compile",
    "grammar.load": "grammar.prepare",
    "guided.decode": "POST /v1/completions",
}


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    if not PICTURE:
        pytest.skip("takes a picture only for `make picture`, which installs arize-phoenix and a browser")
    path = f"{os.environ['PATH']}:{viewer_env.path()}"
    pod = Pod.launch(sample(), args=("--viewer",), env={"PATH": path})
    try:
        pod.wait_ready()
        pod.wait(lambda: pod.find("^traces at "), 180)
        yield pod
    finally:
        pod.stop()


def test_a_request_is_shown_as_its_tree_of_spans(pod: Pod) -> None:
    trace_id = secrets.token_hex(16)
    assert openai.text(openai.guided(pod.url, "JSON record for alice:", "json", SCHEMA, trace_id=trace_id))
    found = pod.find("^traces at (.*)$")
    assert found
    url = found[1]
    pod.wait(lambda: set(TREE) <= {span["name"] for span in spans(url, trace_id)}, 60)
    told = spans(url, trace_id)
    names = {span["context"]["span_id"]: span["name"] for span in told}
    for span in told:
        assert names.get(span["parent_id"]) == TREE[span["name"]], span

    [decoded] = [span for span in told if span["name"] == "guided.decode"]
    [project] = [one["id"] for one in read(f"{url}/v1/projects")["data"] if one["name"] == "default"]
    page = f"{url}/projects/{project}/traces/{trace_id}?selectedSpanNodeId={decoded['id']}"
    expected = {*TREE, "guidedmodel.decode.exposed.duration"}
    # A browser's first start on a busy machine may be over before the page has asked for everything.
    pod.wait(lambda: all(name in shown for shown in [browse(page, "--dump-dom")] for name in expected), 120)
    assert PICTURE
    browse(page, f"--screenshot={Path(PICTURE).absolute()}")
    content = Path(PICTURE).read_bytes()
    assert struct.unpack(">II", content[16:24]) == SIZE
    assert 20_000 < len(content) < 200_000


def spans(url: str, trace_id: str) -> list[dict[str, Any]]:
    """Return a trace's spans, by the viewer's own API."""
    found = read(f"{url}/v1/projects/default/spans?limit=200")["data"]
    return [span for span in found if span["context"]["trace_id"] == trace_id]


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


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

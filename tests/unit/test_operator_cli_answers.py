"""What `status` says of an answer of the API server that is not as expected."""

import http.server
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_operator.cli import main
from guided_operator.kube.apiserver import ApiServer

METADATA = {"namespace": "default", "name": "a", "generation": 1}
KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


def listed(*items: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "items": [*items]}


def with_status(**status: Any) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": {}, "status": status}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(KUBECONFIG))
    return str(file)


def answer(monkeypatch: pytest.MonkeyPatch, given: Any, *events: Any) -> None:
    async def read(*_: Any, **__: Any) -> Any:
        return given

    async def watch(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for event in events:
            yield event

    monkeypatch.setattr(ApiServer, "read", read)
    monkeypatch.setattr(ApiServer, "watch", watch)


@pytest.mark.parametrize("output", ["tree", "json", "yaml"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        None,
        listed() | {"items": None},
        listed(None),
        listed({}),
        listed(with_status(conditions=[None])),
        listed(with_status(conditions=[{"message": None}])),
        listed(with_status(pods={"worst": [{"ranks": 5}]})),
        listed(with_status(pods=[])),
        listed(with_status(grammars={"ready": "1"})),
        listed(with_status() | {"status": "ready"}),
        listed(with_status() | {"metadata": {"name": "a"}}),
    ],
)
def test_an_answer_that_is_not_as_expected_is_told_in_a_line(
    given: Any,
    output: str,
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer(monkeypatch, given)
    assert main(["status", "--kubeconfig", kubeconfig, "-o", output]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("guidedmodel: the API server's answer is not as expected: Expected ") or (
        told.err.startswith("guidedmodel: the API server's answer is not as expected: Object missing ")
    )
    assert (told.out, len(told.err.splitlines())) == ("", 1)


@pytest.mark.parametrize("event", [None, {}, {"type": "ADDED"}, {"type": "ADDED", "object": {}}])
def test_so_is_such_an_event(
    event: Any, kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, listed(with_status()), event)
    assert main(["status", "--kubeconfig", kubeconfig, "--watch"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("guidedmodel: the API server's answer is not as expected: ")
    assert told.out.startswith("GuidedModel default/a: not ready")


@pytest.mark.parametrize("given", [{}, [], None, listed(None)])
def test_such_an_answer_completes_nothing(
    given: Any, kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, given)
    assert main(["__complete", "status", "--kubeconfig", kubeconfig, ""]) == 0
    assert capsys.readouterr() == (":4\n", "")


@pytest.mark.parametrize(
    ("status", "said"),
    [(200, "the API server did not answer: maximum recursion depth"), (500, "the API server answered 500")],
)
def test_an_answer_that_is_nested_too_deeply_is_told_in_a_line(
    status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"[" * 200_000)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(KUBECONFIG | {"clusters": [{"name": "c", "cluster": cluster}]}))
        try:
            assert main(["status", "--kubeconfig", str(file)]) == 2
        finally:
            server.shutdown()
    told = capsys.readouterr()
    assert told.err.startswith(f"guidedmodel: {said}")
    assert (told.out, len(told.err.splitlines())) == ("", 1)


def test_what_another_release_adds_is_no_fault(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, listed(with_status(conditions=[{"type": "New", "more": [1]}], more={"a": None})))
    assert main(["status", "--kubeconfig", kubeconfig]) == 1
    assert "New" in capsys.readouterr().out

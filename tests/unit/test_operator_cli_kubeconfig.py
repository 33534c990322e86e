"""A kubeconfig that is not as it should be: a line and exit status 2, and nothing from completion."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_operator.cli import main

Capture = pytest.CaptureFixture[str]


def kubeconfig(cluster: dict[str, Any] | None = None, **more: Any) -> bytes:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"} | (cluster or {})}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(config | more).encode()


UNUSABLE = {
    "empty": b"",
    "scalar": b"5",
    "list": b"[1]",
    "binary": bytes(range(256)),
    "deep": b"{a: " * 5000,
    "no date": b"a: 2020-13-45",
    "clusters": kubeconfig(clusters=3),
    "contexts": kubeconfig(contexts=[None]),
    "current context": kubeconfig(**{"current-context": 5}),
    "server": kubeconfig({"server": 5}),
    "no address": kubeconfig({"server": "https://[::"}),
    "no scheme": kubeconfig({"server": "ftp://a"}),
    "CA data": kubeconfig({"certificate-authority-data": "aGVsbG8="}),
    "CA file": kubeconfig({"certificate-authority": "/no/such/file"}),
    "proxy": kubeconfig({"proxy-url": 5}),
    "name in TLS": kubeconfig({"tls-server-name": 5}),
}


@pytest.fixture(params=UNUSABLE)
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_bytes(UNUSABLE[request.param])
    return file


def test_what_is_wrong_with_a_kubeconfig_is_told_in_a_line(unusable: Path, capsys: Capture) -> None:
    assert main(["status", "--kubeconfig", str(unusable)]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"guidedmodel: the kubeconfig {unusable} cannot be used: ")
    assert told.out == ""


def test_an_unusable_kubeconfig_completes_nothing(unusable: Path, capsys: Capture) -> None:
    assert main(["__complete", "status", "--kubeconfig", str(unusable), ""]) == 0
    assert capsys.readouterr() == (":4\n", "")


@pytest.mark.parametrize("name", ["x" * 100_000, "~no-such-user/config"])
def test_a_name_that_cannot_be_one_is_told_in_a_line(name: str, capsys: Capture) -> None:
    assert main(["status", "--kubeconfig", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 1000
    for words in ([""], ["--context", ""]):
        assert main(["__complete", "status", "--kubeconfig", name, *words]) == 0
        assert capsys.readouterr() == (":4\n", "")


@pytest.mark.parametrize(
    ("content", "offered"),
    [
        (b"", ":4\n"),
        (b"[1]", ":4\n"),
        (bytes(range(256)), ":4\n"),
        (b"{a: " * 5000, ":4\n"),
        (kubeconfig(contexts=[None]), ":4\n"),
        (kubeconfig(contexts=[{"name": 5}, {"name": "b"}]), "b\n:4\n"),
    ],
)
def test_contexts_that_cannot_be_read_are_not_offered(
    content: bytes, offered: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    assert main(["__complete", "status", "--kubeconfig", str(file), "--context", ""]) == 0
    assert capsys.readouterr() == (offered, "")

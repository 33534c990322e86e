"""A kubeconfig that is not as it should be: a line and exit status 2."""

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
    "no date": b"a: 2020-13-45",
    "clusters": kubeconfig(clusters=3),
    "contexts": kubeconfig(contexts=[None]),
    "current context": kubeconfig(**{"current-context": 5}),
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


@pytest.mark.parametrize("name", ["x" * 100_000, "~no-such-user/config"])
def test_a_name_that_cannot_be_one_is_told_in_a_line(name: str, capsys: Capture) -> None:
    assert main(["status", "--kubeconfig", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 1000


@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"certificate-authority-data": "aGVsbG8="},
        {"certificate-authority": "/no/such/file"},
        {"server": "ftp://a"},
        {"server": "https://[::"},
        {"proxy-url": "http://127.0.0.1:1"},
    ],
)
def test_a_server_that_cannot_be_reached_is_told_in_a_line(
    cluster: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(kubeconfig(cluster))
    assert main(["status", "--kubeconfig", str(file)]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("guidedmodel: the ")
    assert told.out == ""

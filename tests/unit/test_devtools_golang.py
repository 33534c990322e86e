"""Go is asked for in one line that says how to get it."""

from pathlib import Path

import pytest
from devtools import golang


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "go"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GUIDEDMODEL_CACHE", str(tmp_path / "cache"))
    return program


def test_missing_go_is_named(go: Path) -> None:
    assert not go.exists()
    with pytest.raises(golang.MissingToolError, match=r"go is not installed: install Go 1\.26"):
        golang.helm()


@pytest.mark.parametrize("answer", ["go1.19.8\nauto", "go1.24.0\nlocal", ""])
def test_old_go_is_refused_before_it_fails(go: Path, answer: str) -> None:
    go.write_text(f"#!/bin/sh\necho '{answer}'\n")
    go.chmod(0o755)
    with pytest.raises(golang.MissingToolError, match=r"install Go 1\.26"):
        golang.helm()


def test_failed_build_says_what_go_said_and_leaves_nothing_built(go: Path) -> None:
    go.write_text("#!/bin/sh\nif [ $1 = env ]; then echo go1.26.8; else echo no such module; exit 1; fi\n")
    go.chmod(0o755)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such module"):
            golang.helm()

"""What becomes of what `guidedmodel` prints where it cannot be written, and click's own completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guided_operator.cli import main

PROGRAM = [sys.executable, "-m", "guided_operator.cli"]


def test_a_reader_that_is_gone_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(("closed", "said"), [(">&-", "cannot be read"), ("2>&-", "")])
def test_a_closed_stream_changes_no_status(closed: str, said: str, tmp_path: Path) -> None:
    line = f'"$@" validate -f m.yaml {closed}'
    done = subprocess.run(
        ["bash", "-c", line, "bash", *PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_options_are_completed_by_click(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_GUIDEDMODEL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "guidedmodel run --v")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main([]) == 0
    assert capsys.readouterr().out.split() == ["plain,--volume", "plain,--viewer"]

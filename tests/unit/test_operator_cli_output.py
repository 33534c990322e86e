"""What becomes of what `guidedmodel` prints where it cannot be written, and click's own variables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guided_operator.cli import main

FULL = "guidedmodel: [Errno 28] No space left on device\n"
MISSING = "m.yaml: manifest: cannot be read: No such file or directory\n"


def shell(line: str, folder: Path) -> tuple[int, str, str]:
    """Return the exit status of `guidedmodel` as the line has it, and what came out."""
    program = f'guidedmodel() {{ "{sys.executable}" -m guided_operator.cli "$@"; }}; set -o pipefail; {line}'
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("guidedmodel crd > /dev/full", 1, FULL),
        ("guidedmodel --help > /dev/full", 1, FULL),
        ("guidedmodel completion bash > /dev/full", 1, FULL),
        ("guidedmodel __complete '' > /dev/full", 1, FULL),
        ("guidedmodel validate -f m.yaml 2> /dev/full", 1, ""),
        ("guidedmodel validate -f m.yaml >&-", 2, MISSING),
        ("guidedmodel validate -f m.yaml 2>&-", 2, ""),
    ],
)
def test_output_that_cannot_be_written_ends_quietly(
    line: str, status: int, said: str, tmp_path: Path
) -> None:
    assert shell(line, tmp_path) == (status, "", said)


@pytest.mark.parametrize("words", [["crd"], ["--help"], ["__complete", ""]])
def test_a_reader_that_is_gone_ends_it_quietly(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "guided_operator.cli", *words]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_what_the_locale_cannot_write_is_replaced(tmp_path: Path) -> None:
    line = "PYTHONIOENCODING=ascii:strict guidedmodel validate -f é.yaml"
    assert shell(line, tmp_path) == (2, "", MISSING.replace("m", "?", 1))


@pytest.mark.parametrize("instruction", ["bogus", "bash_source", "bash_complete"])
def test_clicks_own_completion_is_off(
    instruction: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_GUIDEDMODEL_COMPLETE", instruction)
    monkeypatch.setenv("COMP_CWORD", "x")
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out.endswith("complete -F _guidedmodel guidedmodel\n")

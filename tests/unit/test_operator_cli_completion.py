"""Shell completion: what is offered where on the command line, and that real shells offer it."""

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from guided_operator.cli import main

PROGRAMS = Path(sys.executable).parent
COMMANDS = ["completion", "crd", "render", "run", "status", "validate"]
# As EKS names them: with what bash splits words at.
CONTEXTS = ["arn:aws:eks:eu-west-1:1234:cluster/a", "kind@home"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home with a kubeconfig, whose cluster nobody answers for."""
    config = tmp_path / "kubeconfig"
    cluster = {"server": "https://127.0.0.1:1"}
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [
                    {"name": name, "context": {"cluster": "c", "user": "u"}} for name in reversed(CONTEXTS)
                ],
                "current-context": CONTEXTS[0],
            }
        )
    )
    return {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(config)}


def offered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """Return the candidates without their descriptions, and what else the shell may offer."""
    assert main(["__complete", *words]) == 0
    *lines, directive = capsys.readouterr().out.splitlines()
    return [line.split("\t")[0] for line in lines], directive


@pytest.mark.parametrize(
    ("words", "candidates", "directive"),
    [
        ([""], COMMANDS, ":4"),
        (["st"], ["status"], ":4"),
        (["nonsense", ""], COMMANDS, ":4"),
        (["crd", ""], [], ":4"),
        (["completion", ""], ["bash", "zsh", "fish"], ":4"),
        (["completion", "bash", ""], [], ":4"),
        (["status", "-o", ""], ["tree", "json", "yaml"], ":4"),
        (["status", "--output=j"], ["--output=json"], ":4"),
        (["status", "--watch", "--o"], ["--output"], ":4"),
        (["status", "--output", "json", "--o"], [], ":4"),
        (["status", "--kubeconfig", ""], [], ":0"),
        (["validate", "-f", ""], [], ":0"),
        (["validate", "-f", "a", ""], [], ":0"),
        (["validate", "-f", "a", "--f"], ["--file"], ":4"),
        (["run", "--volume", ""], [], ":16"),
        (["run", "--viewer", "--v"], ["--volume"], ":4"),
        (["run", "--port", ""], [], ":4"),
    ],
)
def test_what_the_parser_takes_is_offered(
    capsys: pytest.CaptureFixture[str], words: list[str], candidates: list[str], directive: str
) -> None:
    assert offered(capsys, *words) == (candidates, directive)


def test_contexts_are_the_kubeconfigs(
    capsys: pytest.CaptureFixture[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", environment["KUBECONFIG"])
    assert offered(capsys, "status", "--context", "") == (CONTEXTS, ":4")
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    assert offered(capsys, "status", "--context", "") == ([], ":4")


@pytest.mark.parametrize("words", [["status", ""], ["status", "-n", ""], ["status", "--context", "no", ""]])
def test_a_cluster_that_does_not_answer_offers_nothing(environment: dict[str, str], words: list[str]) -> None:
    command = [PROGRAMS / "guidedmodel", "__complete", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == (":4\n", "")


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        assert not os.environ.get("CI"), f"CI must not skip: tools/bootstrap installs {name}"
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return found


LINES = {
    "guidedmodel stat": ["status"],
    "guidedmodel status -o js": ["json"],
    "guidedmodel status --context arn:aws:eks:": [CONTEXTS[0]],
    "guidedmodel status --context=kind@": [f"--context={CONTEXTS[1]}"],
}


@pytest.mark.parametrize(("line", "wanted"), LINES.items())
def test_bash_completes(environment: dict[str, str], line: str, wanted: list[str]) -> None:
    program = (
        "source <(guidedmodel completion bash); COMP_LINE=$1; COMP_POINT=${#1}; _guidedmodel;"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = [shell("bash"), "--norc", "-c", program, "bash", line]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    # Bash replaces only what stands after the last character that it splits words at.
    last = line.rsplit(maxsplit=1)[-1]
    kept = len(last) - len(last.replace("@", ":").replace("=", ":").rpartition(":")[2])
    assert (done.stdout.splitlines(), done.stderr) == ([each[kept:] for each in wanted], "")


@pytest.mark.parametrize(("line", "wanted"), LINES.items())
def test_fish_completes(environment: dict[str, str], line: str, wanted: list[str]) -> None:
    program = "guidedmodel completion fish | source; complete -C $argv[1]"
    command = [shell("fish"), "--no-config", "-c", program, line]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert ([each.split("\t")[0] for each in done.stdout.splitlines()], done.stderr) == (wanted, "")


@contextmanager
def interactive(environment: dict[str, str], *command: str) -> Iterator[int]:
    """Start a shell on a terminal of its own; yield our end of it."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield ours
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def test_zsh_completes(environment: dict[str, str], tmp_path: Path) -> None:
    """On a terminal, as only there zsh completes: after TAB, ^X writes what stands on the line to a file."""
    setup = (
        "PS1='> '; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D;"
        "source <(guidedmodel completion zsh);"
        f"dump() {{ print -r -- $BUFFER >> {tmp_path}/lines; BUFFER=; }}; zle -N dump; bindkey '^X' dump;"
        f"print ready > {tmp_path}/lines\n"
    )
    lines = tmp_path / "lines"
    with interactive(environment | {"TERM": "dumb"}, shell("zsh"), "-f", "-i") as terminal:
        os.write(terminal, setup.encode())
        found = ["ready"]
        for line, (wanted,) in LINES.items():
            wait_lines(lines, terminal, found)
            os.write(terminal, f"{line}\t\x18".encode())
            *before, _ = line.split()
            found.append(" ".join([*before, wanted]))
        wait_lines(lines, terminal, found)


def wait_lines(file: Path, terminal: int, wanted: list[str]) -> None:
    deadline = time.monotonic() + 30
    os.set_blocking(terminal, False)
    said = b""
    while True:
        try:
            said += os.read(terminal, 65536)  # or the shell would wait for somebody to read
        except BlockingIOError:
            time.sleep(0.02)
        found = [line.rstrip() for line in file.read_text().splitlines()] if file.exists() else []
        if found == wanted:
            return
        assert time.monotonic() < deadline, (found, said.decode(errors="replace"))

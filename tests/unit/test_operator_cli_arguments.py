"""What `guidedmodel` says of bad input, and what it prints of good."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from guided_operator.cli import main

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "manifests/samples/tiny-cpu.yaml"


def write(folder: Path, **changes: object) -> str:
    manifest = yaml.safe_load(SAMPLE.read_text())
    manifest["spec"].update(changes)
    file = folder / "model.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return str(file)


@pytest.mark.parametrize("command", ["run", "validate", "render"])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"guidedDecodng": {}}, "spec.guidedDecodng: unknown field, did you mean guidedDecoding?"),
        ({"model": {"uri": "s3://bucket/x"}}, "spec.model.uri: must match ^(hf://"),
        ({"parallelism": {"tensor": 3, "nodes": 2}}, "spec.parallelism.nodes: tensor * pipeline must be"),
    ],
)
def test_a_bad_manifest_names_field_and_reason(
    command: str, changes: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, **changes)
    assert main([command, "-f", file]) == 2
    assert f"{file}: {said}" in capsys.readouterr().err


def test_what_the_api_server_looks_not_into_is_in_no_rules_way(tmp_path: Path) -> None:
    processor = {"name": "a", "factory": "x.y:Z", "params": {"seed": 2**70}}
    assert main(["validate", "-f", write(tmp_path, logitsProcessors=[processor])]) == 0


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-f", str(tmp_path / "no.yaml")]) == 2
    assert (
        capsys.readouterr().err
        == f"{tmp_path}/no.yaml: manifest: cannot be read: No such file or directory\n"
    )


def test_run_says_which_model_folder_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GUIDEDMODEL_HOME", str(tmp_path))
    assert main(["run", "-f", str(SAMPLE)]) == 2
    said = f"{SAMPLE}: spec.model.uri: there is no folder {tmp_path}/volumes/models/tiny; --volume models=DIR"
    assert said in capsys.readouterr().err


def test_run_says_which_variable_of_a_secret_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    key = {"name": "hugging-face", "key": "token"}
    file = write(tmp_path, model={"uri": "hf://a/b", "authSecretKeyRef": key})
    assert main(["run", "-f", file]) == 2
    said = "HF_TOKEN comes from a Secret in a cluster: here, set it in the environment"
    assert capsys.readouterr().err == f"guidedmodel: {said}\n"


def test_run_refuses_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", "-f", str(SAMPLE), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"guidedmodel: port {port} is in use\n"


def test_two_runs_never_share_a_port(tmp_path: Path) -> None:
    """Both choose long before vLLM binds, and vLLM shares a port in silence."""
    program = (
        "import sys; from pathlib import Path; from guided_operator.cli.local.site import local_site\n"
        "site = local_site(Path('x'), volumes={}, port=None, otlp_endpoint=None)\n"
        "print(site.ports.engine, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    try:
        ports = [child.stdout.readline() for child in started if child.stdout]
        assert all(ports)
        assert len(set(ports)) == len(started)
    finally:
        for child in started:
            child.communicate("", timeout=30)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["run", "-f", "x", "--port", "70000"],
        ["run", "-f", "x", "--volume", "models"],
        ["run", "-f", "x", "--volume", "models=/no/such/folder"],
        ["run", "-f", "x", "--config-map", "texts"],
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: guidedmodel" in capsys.readouterr().err

"""What the commands read, what they say of it, and what they print."""

import io
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_operator.api import ManifestError, parse
from guided_operator.builders.pod_paths import Site
from guided_operator.cli import main
from guided_operator.cli.inputs import gather
from guided_operator.cli.local.site import lay_out, local_site
from support.manifests import REMOVED, changed, children_of, minimal

Capture = pytest.CaptureFixture[str]
SAMPLE = Path(__file__).parents[2] / "manifests/samples/tiny-cpu.yaml"
PROGRAM = [sys.executable, "-m", "guided_operator.cli"]
GRAMMAR = {"name": "card", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts", "key": "card.json"}}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}}


def texts(name: str = "texts", namespace: str = "default", **data: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def write(file: Path, *objects: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


def test_files_and_folders_are_read_with_all_that_is_in_them(tmp_path: Path, capsys: Capture) -> None:
    one = write(tmp_path / "one.yaml", NAMESPACE, minimal("a"), minimal("b"))
    two = write(tmp_path / "two.json", minimal("c"))
    folder = tmp_path / "models"
    deep = write(folder / "deep/d.yml", minimal("d"))
    write(folder / "kustomization.yaml", {"kind": "Kustomization", "resources": ["a.yaml"]})
    write(folder / ".git/e.yaml", {"not": "looked at"}, minimal("Bad_Name"))
    (folder / "notes.txt").write_text("no: manifest: at all")
    assert main(["validate", "-f", one, two, "-f", str(folder)]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"{deep}: GuidedModel default/d is valid",
        f"{one} (a): GuidedModel default/a is valid",
        f"{one} (b): GuidedModel default/b is valid",
        f"{two}: GuidedModel default/c is valid",
    ]


def test_stdin_is_read_and_so_is_a_list(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [minimal("a"), minimal("b")]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(listed).encode()), "ascii"))
    assert main(["validate", "-f", "-"]) == 0
    assert capsys.readouterr().out.count(" is valid\n") == 2


def test_manifests_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    text = f"# Modèle\n{yaml.safe_dump(minimal('a'))}".encode()
    file = tmp_path / "m.yaml"
    file.write_bytes(text)
    environment = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*PROGRAM, "validate", "-f", str(file), "-"],
        input=text.replace(b"name: a", b"name: b"),
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr.decode().splitlines()) == (0, [])


@pytest.mark.parametrize("command", ["validate", "render", "run"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "line 1: not YAML"),
        (b"\xff\xfe\xff", "not UTF-8"),
        ({"kind": "GuidedModl", "apiVersion": "guidedmodel.io/v1alpha1"}, "kind: must be"),
        ({"kind": "List", "items": 5}, "items: must be a list"),
        ({"kind": "Pod", "apiVersion": "v1"}, "manifest: holds no GuidedModel"),
        # By the schema, by a rule in CEL, and by what only the operator refuses.
        ({"guidedDecodng": {}}, "spec.guidedDecodng: unknown field, did you mean guidedDecoding?"),
        ({"parallelism": {"tensor": 3, "nodes": 2}}, "spec.parallelism.nodes: tensor * pipeline must be"),
        ({"engine__args": ["--model=x"]}, "spec.engine.args[0]: --model is set by the operator"),
        ({"logitsProcessors": [{"name": "a", "factory": "b:C", "enforced": True, "applyByDefault": False}]},
         "spec.logitsProcessors[0].enforced: an enforced processor"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_line_by_each_command(
    tmp_path: Path, capsys: Capture, command: str, content: Any, said: str
) -> None:
    file = tmp_path / "m.yaml"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        write(file, content if "kind" in content else changed(minimal(), **content))
    assert main([command, "-f", str(file)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"{file}: ")
    assert said in told.err
    assert told.err.count("\n") == 1


def test_one_fault_does_not_hide_another(tmp_path: Path, capsys: Capture) -> None:
    file = write(
        tmp_path / "m.yaml",
        changed(minimal("a"), replicas=-1),
        minimal("b"),
        changed(minimal("c"), guidedDecodng={}, model=REMOVED),
    )
    torn = tmp_path / "torn.yaml"
    torn.write_text("a: [")
    assert main(["validate", "-f", file, str(torn), str(tmp_path / "none.yaml")]) == 2
    told = capsys.readouterr()
    assert told.out == f"{file} (b): GuidedModel default/b is valid\n"
    assert [line.rsplit(": ", 1)[0] for line in told.err.splitlines()] == [
        f"{file} (a): spec.replicas",
        f"{file} (c): spec.model",
        f"{file} (c): spec.guidedDecodng",
        f"{torn}: line 1: not YAML",
        f"{tmp_path}/none.yaml: manifest: cannot be read",
    ]


def test_no_code_that_a_manifest_names_is_imported(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not_to_be_run.py").write_text("raise SystemExit('run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    processor = {"name": "a", "factory": "not_to_be_run:Any", "params": {"seed": 2**70}}
    file = write(tmp_path / "a.yaml", changed(minimal(), logitsProcessors=[processor]))
    for command in ("validate", "render"):
        assert main([command, "-f", file]) == 0
    assert "not_to_be_run:Any" in capsys.readouterr().out
    assert "not_to_be_run" not in sys.modules


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], ""),  # it may be in the cluster
        ([texts(**{"card.json": "{}"})], ""),
        ([texts(other="{}")], "ConfigMap texts has no key card.json"),
        ([texts(**{"card.json": "x" * (1 << 20)})], "too large"),
        ([texts(other=1)], "ConfigMap texts data.other: must be text"),
    ],
)
def test_grammars_are_looked_for_in_the_config_maps_that_are_given(
    tmp_path: Path, capsys: Capture, given: list[Any], said: str
) -> None:
    write(tmp_path / "model.yaml", changed(minimal(), guidedDecoding__grammars=[GRAMMAR]))
    if given:
        write(tmp_path / "texts.yaml", *given)
    assert main(["validate", "-f", str(tmp_path)]) == (2 if said else 0)
    told = capsys.readouterr().err.splitlines()
    assert [said in each for each in told] == [True] * bool(said)


MORE = {"name": "code", "kind": "Regex", "configMapKeyRef": {"name": "more", "key": "code"}}
BOTH = changed(minimal(), guidedDecoding__grammars=[GRAMMAR, MORE])
CARD = {"card.json": "{}"}


def laid_out(folder: Path, *given: Any, **config_maps: Path) -> Path:
    """Return where a local run has the texts of both grammars, with these ConfigMaps and folders."""
    models = folder / "models"
    models.joinpath("tiny").mkdir(parents=True)
    site = local_site(folder, volumes={"models": models}, port=None, otlp_endpoint=None)
    inputs = gather([write(folder / "m.yaml", *given, BOTH)])
    [(_, model)] = inputs.models
    lay_out(model, inputs.sources(model), site, config_maps)
    return Path(site.named_grammars)


def test_run_takes_texts_from_the_file_or_from_a_folder_that_it_follows(tmp_path: Path) -> None:
    elsewhere = texts("more", "elsewhere", code="b+")
    found = laid_out(tmp_path / "a", texts(**CARD), texts("more", code="a+"), elsewhere)
    assert {each.name: each.read_text() for each in found.iterdir()} == {
        "card.JSONSchema": "{}",
        "code.Regex": "a+",
    }
    (tmp_path / "code").write_text("a+")
    file = laid_out(tmp_path / "b", texts(**CARD), more=tmp_path) / "code.Regex"
    assert file.read_text() == "a+"
    (tmp_path / "code").write_text("b+")
    assert file.read_text() == "b+"
    with pytest.raises(ManifestError) as caught:
        laid_out(tmp_path / "c", texts(other="{}"), more=tmp_path / "a")
    first, second = map(str, caught.value.problems)
    assert first.startswith("spec.guidedDecoding.grammars[0].configMapKeyRef: ")
    assert "--config-map texts=DIR" in first
    assert second.startswith("spec.guidedDecoding.grammars[1].configMapKeyRef: ")


def test_render_prints_every_models_children_as_builders_make_them(tmp_path: Path, capsys: Capture) -> None:
    file = write(tmp_path / "m.yaml", BOTH, minimal("b"), texts(**CARD))
    assert main(["render", "-f", file, "--plugin-image", "registry/plugin:1"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    site = Site("registry/plugin:1")
    for model, sources in ((BOTH, {"texts": CARD}), (minimal("b"), {})):
        for child in children_of(parse(model), site, sources):
            assert child in printed
    assert not any("ownerReferences" in each["metadata"] for each in printed)
    [merged] = [each for each in printed if each["metadata"]["name"] == "tiny-grammars"]
    assert merged["data"] == {"card.JSONSchema": "{}", "code.Absent": "there is no ConfigMap more"}


def test_run_says_what_it_lacks(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUIDEDMODEL_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub = {"uri": "hf://a/b", "authSecretKeyRef": {"name": "hugging-face", "key": "token"}}
    token = write(tmp_path / "token.yaml", changed(minimal(), model=hub))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, said in (
            (
                [str(SAMPLE)],
                f"spec.model.uri: there is no folder {tmp_path}/volumes/models/tiny; --volume models=DIR",
            ),
            ([token], "HF_TOKEN comes from a Secret in a cluster: here, set it in the environment"),
            ([str(SAMPLE), "--port", str(port)], f"port {port} is in use"),
        ):
            assert main(["run", "-f", *arguments]) == 2
            assert said in capsys.readouterr().err


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


@pytest.mark.parametrize("more", ["", "--port 70000", "--volume models", "--volume m=/no/folder"])
def test_wrong_arguments_exit_with_2(more: str, capsys: Capture) -> None:
    assert main(["run", *(["-f", "x"] if more else []), *more.split()]) == 2
    assert "Usage: guidedmodel" in capsys.readouterr().err


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

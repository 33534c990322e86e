"""Manifests as people keep them: what `validate` and `render` read, and what they say of it."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_operator.api import parse
from guided_operator.builders.pod_paths import Site
from guided_operator.cli import main
from guided_operator.policy.installation_limits import NO_LIMITS
from guided_operator.policy.spec_checks import check
from support.manifests import REMOVED, changed, children_of, minimal

Capture = pytest.CaptureFixture[str]
GRAMMAR = {"name": "card", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts", "key": "card.json"}}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}}


def texts(**data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "texts"}, "data": data}


def write(file: Path, *objects: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


def test_many_files_and_documents_are_read(tmp_path: Path, capsys: Capture) -> None:
    one = write(tmp_path / "one.yaml", NAMESPACE, minimal("a"), minimal("b"))
    two = write(tmp_path / "two.json", minimal("c"))
    assert main(["validate", "-f", one, two]) == 0
    assert main(["validate", "-f", one, "-f", two]) == 0
    said = [
        f"{one} (a): GuidedModel default/a is valid",
        f"{one} (b): GuidedModel default/b is valid",
        f"{two}: GuidedModel default/c is valid",
    ]
    assert capsys.readouterr().out.splitlines() == said * 2


def test_a_folder_is_read_with_all_below_it(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "models/a.yaml", minimal("a"))
    write(tmp_path / "models/deep/b.yml", minimal("b"))
    write(tmp_path / "models/kustomization.yaml", {"kind": "Kustomization", "resources": ["a.yaml"]})
    write(tmp_path / "models/.git/c.yaml", {"not": "looked at"}, minimal("Bad_Name"))
    (tmp_path / "models/notes.txt").write_text("no: manifest: at all")
    assert main(["validate", "-f", str(tmp_path / "models")]) == 0
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "GuidedModel default/a is valid",
        "GuidedModel default/b is valid",
    ]


def test_factories_are_an_operators_to_limit_and_rules_are_everybodys(
    tmp_path: Path, capsys: Capture
) -> None:
    processor = {"name": "a", "factory": "acme.processors:Ban", "enforced": True}
    file = write(tmp_path / "a.yaml", changed(minimal(), logitsProcessors=[processor]))
    assert main(["validate", "-f", file]) == 0
    file = write(
        tmp_path / "b.yaml", changed(minimal(), logitsProcessors=[{**processor, "applyByDefault": False}])
    )
    for command in ("validate", "run"):
        assert main([command, "-f", file]) == 2
        assert (
            "spec.logitsProcessors[0].enforced: an enforced processor always runs" in capsys.readouterr().err
        )


def test_no_code_that_a_manifest_names_is_imported(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not_to_be_run.py").write_text("raise SystemExit('run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    processor = {"name": "a", "factory": "not_to_be_run:Any"}
    model = changed(minimal(), logitsProcessors=[processor])
    for command in ("validate", "render"):
        assert main([command, "-f", write(tmp_path / "a.yaml", model)]) == 0
    assert "not_to_be_run:Any" in capsys.readouterr().out
    assert not [*check(parse(model)), *NO_LIMITS.check(parse(model))]
    assert "not_to_be_run" not in sys.modules


def test_stdin_is_read_and_so_is_a_list(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [minimal("a"), minimal("b")]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(listed).encode()), "ascii"))
    assert main(["validate", "-f", "-"]) == 0
    assert capsys.readouterr().out.count(" is valid\n") == 2


def test_manifests_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    text = f"# Modèle\n{yaml.safe_dump(minimal('a'))}".encode()
    file = tmp_path / "m.yaml"
    file.write_bytes(text)
    command = [sys.executable, "-m", "guided_operator.cli", "validate", "-f", str(file), "-"]
    stdin = text.replace(b"name: a", b"name: b")
    environment = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        command, input=stdin, env=environment, capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr.decode().splitlines()) == (0, [])


def test_a_closed_stdin_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["validate", "-f", "-"]) == 2
    assert capsys.readouterr().err == "-: manifest: cannot be read: stdin is closed\n"


@pytest.mark.parametrize("command", ["validate", "render", "run"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "line 1: not YAML"),
        (b"\xff\xfe\xff", "not UTF-8"),
        (b"kind: GuidedModl\napiVersion: guidedmodel.io/v1alpha1\n", "kind: must be"),
    ],
)
def test_what_is_no_guided_model_is_told_in_a_line(
    tmp_path: Path, capsys: Capture, command: str, content: bytes, said: str
) -> None:
    file = tmp_path / "m.yaml"
    file.write_bytes(content)
    assert main([command, "-f", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"{file}: ")
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "List", "items": 5}, "items: must be a list"),
        ({"kind": "Pod", "apiVersion": "v1"}, "manifest: holds no GuidedModel"),
    ],
)
def test_a_file_without_guided_models_is_named(
    tmp_path: Path, capsys: Capture, document: Any, said: str
) -> None:
    file = write(tmp_path / "m.yaml", document)
    assert main(["validate", "-f", file]) == 2
    assert capsys.readouterr().err == f"{file}: {said}\n"


def test_a_name_that_is_too_long_is_told_so(capsys: Capture) -> None:
    assert main(["validate", "-f", "x" * 5000]) == 2
    assert capsys.readouterr().err.endswith("x: manifest: cannot be read: File name too long\n")


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine__image": "vllm/vllm-openai:v0.11.0"}, "spec.engine.image: "),
        ({"engine__args": ["--model=x"]}, "spec.engine.args[0]: --model is set by the operator"),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "spec.resources.requests.cpu: 2 exceeds the limit, 1",
        ),
    ],
)
def test_what_only_reconcile_refuses_is_refused(
    tmp_path: Path, capsys: Capture, changes: dict[str, Any], said: str
) -> None:
    file = write(tmp_path / "m.yaml", changed(minimal(), **changes))
    for command in ("validate", "render"):
        assert main([command, "-f", file]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err[: len(file) + 2 + len(said)]) == ("", f"{file}: {said}")


def test_reserved_arguments_are_refused_by_each_command(tmp_path: Path, capsys: Capture) -> None:
    file = write(tmp_path / "m.yaml", changed(minimal(), engine__args=["--worker-cls=x"]))
    for command in ("validate", "render", "run"):
        assert main([command, "-f", file]) == 2
        assert "spec.engine.args[0]: --worker-cls is set by the operator" in capsys.readouterr().err


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
    model = changed(minimal(), guidedDecoding__grammars=[GRAMMAR])
    write(tmp_path / "model.yaml", model)
    if given:
        write(tmp_path / "texts.yaml", *given)
    assert main(["validate", "-f", str(tmp_path)]) == (2 if said else 0)
    told = capsys.readouterr().err.splitlines()
    assert [said in each for each in told] == [True] * bool(said)


def test_render_prints_every_models_children_as_builders_make_them(tmp_path: Path, capsys: Capture) -> None:
    grammars = changed(minimal("a"), guidedDecoding__grammars=[GRAMMAR])
    file = write(tmp_path / "m.yaml", grammars, minimal("b"), texts(**{"card.json": "{}"}))
    assert main(["render", "-f", file, "--plugin-image", "registry/plugin:1"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    site = Site("registry/plugin:1")
    for model, sources in ((grammars, {"texts": {"card.json": "{}"}}), (minimal("b"), {})):
        for child in children_of(parse(model), site, sources):
            assert child in printed
    assert not any("ownerReferences" in each["metadata"] for each in printed)

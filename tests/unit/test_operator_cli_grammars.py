"""Named grammars without a cluster: ConfigMaps in the manifest's file, or folders that stand for them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_operator.api import ManifestError
from guided_operator.builders.pod_paths import Site
from guided_operator.cli.inputs import gather
from guided_operator.cli.local.site import lay_out, local_site
from support.manifests import changed, minimal

GRAMMARS = [
    {"name": "card", "kind": "JSONSchema", "configMapKeyRef": {"name": "texts", "key": "card.json"}},
    {"name": "code", "kind": "Regex", "configMapKeyRef": {"name": "more", "key": "code"}},
]


def config_map(name: str, namespace: str = "", **data: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def text(*config_maps: dict[str, Any]) -> str:
    model = changed(minimal(), guidedDecoding__grammars=GRAMMARS)
    return yaml.safe_dump_all([*config_maps, model])


def laid_out(folder: Path, manifest: str, **config_maps: Path) -> Site:
    models = folder / "models"
    models.joinpath("tiny").mkdir(parents=True)
    site = local_site(folder, volumes={"models": models}, port=None, otlp_endpoint=None)
    file = folder / "model.yaml"
    file.write_text(manifest)
    inputs = gather([str(file)])
    assert not inputs.faults
    [(_, model)] = inputs.models
    lay_out(model, inputs.sources(model), site, config_maps)
    return site


def test_texts_come_from_the_manifests_file(tmp_path: Path) -> None:
    maps = [config_map("texts", **{"card.json": "{}"}), config_map("more", "default", code="a+")]
    site = laid_out(tmp_path, text(*maps, config_map("more", "elsewhere", code="b+")))
    found = {path.name: path.read_text() for path in Path(site.named_grammars).iterdir()}
    assert found == {"card.JSONSchema": "{}", "code.Regex": "a+"}


def test_a_folder_stands_for_a_config_map_and_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "code").write_text("a+")
    site = laid_out(tmp_path, text(config_map("texts", **{"card.json": "{}"})), more=folder)
    file = Path(site.named_grammars, "code.Regex")
    assert file.read_text() == "a+"
    (folder / "code").write_text("b+")
    assert file.read_text() == "b+"


def test_every_text_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        laid_out(tmp_path, text(config_map("texts", other="{}"), config_map("more", code="a")), more=tmp_path)
    problems = [str(problem) for problem in caught.value.problems]
    assert [problem.split(":")[0] for problem in problems] == [
        "spec.guidedDecoding.grammars[0].configMapKeyRef",
        "spec.guidedDecoding.grammars[1].configMapKeyRef",
    ]
    assert "--config-map texts=DIR" in problems[0]

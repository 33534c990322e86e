"""The pod that modules of this folder share: starting one takes a minute."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools import deploy

from support.cluster import Node
from support.pod import COMPILE_DEADLINE_S, Pod, sample, start_pod
from support.routes import CONSTRAINTS
from support.served import Served, serving

# Kind and text of the pod's named grammars, each in a file of its own in the folder `texts`.
NAMED = {
    "card": ("JSONSchema", json.dumps(CONSTRAINTS["json"].spec)),
    "code": ("Regex", CONSTRAINTS["regex"].spec),
    "query": ("EBNF", CONSTRAINTS["EBNF"].spec),
    "tag": ("StructuralTag", CONSTRAINTS["structural tag"].spec),
}


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that stands for the ConfigMap of the pod's named grammars."""
    folder = tmp_path_factory.mktemp("texts")
    for name, (_, text) in NAMED.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def pod(texts: Path) -> Iterator[Pod]:
    """The sample without thinking, with a short deadline for compiles, tokens in and out, named grammars."""

    def grammar(name: str) -> dict[str, Any]:
        return {"name": name, "kind": NAMED[name][0], "configMapKeyRef": {"name": "texts", "key": name}}

    guided = {"compile": {"timeout": f"{COMPILE_DEADLINE_S:.0f}s"}, "grammars": [*map(grammar, NAMED)]}
    manifest = sample(guidedDecoding=guided)
    manifest["spec"]["engine"]["args"] += ["--enable-scale-out"]
    pod = start_pod(manifest, args=["--config-map", f"texts={texts}"])
    yield pod
    pod.stop()


@pytest.fixture(scope="module")
def thinking_pod() -> Iterator[Pod]:
    """The sample as it stands, with the model that it is for."""
    manifest = deploy.sample()
    manifest["spec"]["engine"]["args"] += ["--max-model-len=2048"]  # room for what types of every day take
    # Ranks that spin on two cores leave workers little CPU.
    manifest["spec"].setdefault("guidedDecoding", {})["compile"] = {"timeout": "60s"}
    pod = start_pod(manifest, models=deploy.models())
    yield pod
    pod.stop()


@pytest.fixture(scope="session")
def served(node: Node) -> Iterator[Served]:
    """The sample on the test node."""
    with serving(node) as served:
        yield served

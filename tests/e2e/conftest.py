"""The pod that modules of this folder share: starting one takes a minute."""

import json
from collections.abc import Iterator

import pytest
from devtools import deploy

from support.pod import Pod, sample, start_pod
from support.routes import CONSTRAINTS
from support.served import served

__all__ = ["served"]  # a fixture


@pytest.fixture(scope="session")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """The sample without thinking, with a short deadline for compiles, tokens in and out, a named grammar."""
    texts = tmp_path_factory.mktemp("texts")
    (texts / "card").write_text(json.dumps(CONSTRAINTS["json"].spec))
    reference = {"name": "texts", "key": "card"}
    card = {"name": "card", "kind": "JSONSchema", "configMapKeyRef": reference}
    # Where its two ranks have the only two cores, a worker, which is nice, got 0.3 s of CPU in 6 s.
    compile_ = {"timeout": "20s"}
    manifest = sample(guidedDecoding={"compile": compile_, "grammars": [card]})
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

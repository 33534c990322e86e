"""Which tokenizer the grammar workers have: that of the resource's revision, as the ranks have it."""

import json
import shutil
from pathlib import Path

import pytest
from devtools import tinymodel

from guided_contract import names
from guided_sidecar.grammar.jobs import Ready
from guided_sidecar.grammar.process import Template
from support.engine import pod_config, write_config

MAIN, PINNED = "a" * 40, "b" * 40
SIZES = {MAIN: 8256, PINNED: tinymodel.VOCAB}
_CODE = """
from pathlib import Path
from transformers import LlamaConfig

class RemoteConfig(LlamaConfig):
    model_type = "remote"

Path({note!r}).open("a").write({commit!r} + "\\n")
"""


def hub(folder: Path, note: Path | None = None) -> Path:
    """Write a hub's cache with a model of two commits; each one's code writes its commit to `note`."""
    repository = folder / "hub" / "models--org--model"
    for commit, size in SIZES.items():
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tinymodel.models() / "tiny" / file, snapshot)
        config = json.loads((snapshot / "config.json").read_text()) | {"vocab_size": size}
        if note is not None:
            config |= {"model_type": "remote", "auto_map": {"AutoConfig": "remote_config.RemoteConfig"}}
            (snapshot / "remote_config.py").write_text(_CODE.format(note=str(note), commit=commit))
        (snapshot / "config.json").write_text(json.dumps(config))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(MAIN)
    return folder


async def template_of(
    run_dir: Path, hub_home: Path, monkeypatch: pytest.MonkeyPatch, **fields: object
) -> Ready:
    pod = pod_config(run_dir, "org/model", **fields)
    monkeypatch.setenv(names.ENV_CONFIG, str(write_config(pod)))
    monkeypatch.setenv("HF_HOME", str(hub_home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    template = Template(lambda _worker: None)
    try:
        return await template.start(120)
    finally:
        await template.stop()


@pytest.mark.parametrize(("revision", "commit"), [(PINNED, PINNED), (None, MAIN)])
async def test_the_tokenizer_is_of_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str | None, commit: str
) -> None:
    facts = await template_of(tmp_path, hub(tmp_path / "hf"), monkeypatch, revision=revision)

    assert facts.vocab_size == SIZES[commit]


async def test_only_the_code_of_the_pinned_commit_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the branch's newest code to run, whoever can push there had our rights."""
    note = tmp_path / "ran"
    home = hub(tmp_path / "hf", note)

    facts = await template_of(tmp_path, home, monkeypatch, revision=PINNED, trust_remote_code=True)

    assert facts.vocab_size == SIZES[PINNED]
    assert set(note.read_text().split()) == {PINNED}

"""Which tokenizer the grammar workers have: that of the resource's revision, as the ranks have it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from devtools import tinymodel

from guided_contract import names
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Backend, Hello, Prepared, Refused
from guided_sidecar.grammar.compile import vocabulary
from support.engine import pod_config, write_config
from support.sidecar import Api, Client, Rank, Sidecar, kill, until

MAIN, PINNED = "a" * 40, "b" * 40
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # the template starts meanwhile
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


def test_only_the_code_of_the_pinned_commit_runs(tmp_path: Path) -> None:
    """Were the branch's newest code to run, whoever can push there had our rights."""
    note = tmp_path / "ran"
    pod = pod_config(tmp_path, "org/model", revision=PINNED, trust_remote_code=True)
    code = (
        "from guided_contract import config; from guided_sidecar.grammar.compile import vocabulary; "
        "print(vocabulary.load(config.load()).vocab_size)"
    )
    more = {"HF_HOME": str(hub(tmp_path / "hf", note)), "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **more, names.ENV_CONFIG: str(write_config(pod))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )

    assert int(done.stdout) == SIZES[PINNED]
    assert set(note.read_text().split()) == {PINNED}


def fingerprints(run_dir: Path, home: Path, commit: str) -> dict[Backend, str]:
    snapshot = home / "hub" / "models--org--model" / "snapshots" / commit
    return vocabulary.load(pod_config(run_dir, snapshot)).fingerprints


async def test_nothing_guided_is_served_with_two_tokenizers(tmp_path: Path) -> None:
    """A branch moves on the hub under a running engine, and the sidecar reads it anew."""
    home = hub(tmp_path / "hf")
    old, new = (fingerprints(tmp_path, home, commit) for commit in (PINNED, MAIN))
    branch = home / "hub" / "models--org--model" / "refs" / "main"
    branch.write_text(PINNED)
    pod = pod_config(tmp_path, "org/model", guided_decoding=PATIENT)
    async with contextlib.AsyncExitStack() as stack:
        sidecar = stack.enter_context(Sidecar.running(pod, {"HF_HOME": str(home)}))
        for role in ("launcher", "core"):
            client = await Client.open(sidecar.pod)
            stack.callback(client.close)
            await client.greet(Hello(role=role, pid=1, boot="boot"))  # type: ignore[arg-type]
        api = await stack.enter_async_context(Api.connected(sidecar.pod))
        async with Rank.connected(sidecar.pod, tokenizer=old):
            number, prepared = api.begin("choice", '["a", "b"]')
            assert isinstance(await prepared, Prepared)
            api.release(number)

            branch.write_text(MAIN)
            template = sidecar.template_pid()
            assert template is not None
            kill(template)
            await until(lambda: sidecar.page().reason == "TokenizersDiffer", 60)
            assert "rank 0: 8192 tokens, " in sidecar.page().message
        async with Rank.connected(sidecar.pod, tokenizer=old) as rank:
            for spec in ('["a", "b"]', '["c", "d"]'):  # the first is compiled already
                answer = await api.prepare("choice", spec)
                assert isinstance(answer, Refused)
                assert answer.code == "grammar_tokenizers_differ"
                assert answer.retry_after_s
            assert not rank.loads
        async with Rank.connected(sidecar.pod, tokenizer=new) as rank:
            assert isinstance(await api.prepare("choice", '["a", "b"]'), Prepared)
            assert len(rank.loads) == 1

"""Where compiled grammars have no room: on the tmpfs, within the bound of those in use."""

import contextlib
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Prepared, Refused
from support import grammars
from support.service import serving
from support.sidecar import Api, Rank

# What ranks load from a file: xgrammar compiles it for longer than they may.
KNOWN, NEW = grammars.slow_regex(400), grammars.slow_regex(401)
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # these machines can be busy


@contextlib.contextmanager
def _small_tmpfs(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tests", folder],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here ({made.stderr.strip()}): run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


async def test_a_full_tmpfs_is_told_as_that_and_corrupts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _small_tmpfs(tmp_path / "run", "64m") as run:
        async with (
            serving(run, monkeypatch, guided_decoding=PATIENT) as (_, pod),
            Rank.connected(pod) as rank,
            Api.connected(pod) as api,
        ):
            known = await api.prepare("regex", KNOWN, backend="xgrammar")
            filler = run / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
            refused = await api.prepare("regex", NEW, backend="xgrammar")
            assert isinstance(refused, Refused)
            assert refused.code == "grammar_storage_full", refused.message
            assert refused.retry_after_s
            assert "No space left" in refused.message
            again = await api.prepare("regex", KNOWN, backend="xgrammar")
            assert again == msgspec.structs.replace(known, id=3)
            for schema in (grammars.BOUNDED, grammars.PERSON):
                assert isinstance(await api.prepare("json", schema), Prepared), "it needs no file"
            assert {path.name for path in pod.grammars_folder.iterdir()} == {known.key}  # type: ignore[union-attr]

            filler.unlink()
            again = await api.prepare("regex", NEW, backend="xgrammar")
            assert isinstance(again, Prepared), again
            load = next(load for load in rank.loads if load.key == again.key)
            content = (pod.grammars_folder / again.key).read_bytes()
            assert hashlib.sha256(content).hexdigest() == load.sha256


async def test_what_ranks_hold_of_a_short_text_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array of 16,000 places is 60 bytes of schema and 12 MB in each rank."""
    async with (
        serving(tmp_path, monkeypatch, settings={"artifact_bytes": 100_000_000}, guided_decoding=PATIENT) as (
            service,
            pod,
        ),
        Rank.connected(pod),
        Api.connected(pod) as api,
    ):
        for count in range(16_000, 16_030):
            schema = {"type": "array", "items": {"type": "null"}, "maxItems": count}
            _, answer = api.begin("json", json.dumps(schema))
            prepared = await answer
            if isinstance(prepared, Refused):
                break
        assert isinstance(prepared, Refused), "no end to them"
        assert prepared.code == "grammar_storage_full"
        assert service.snapshot().cache.leased_bytes <= 100_000_000

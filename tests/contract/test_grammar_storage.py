"""Where compiled grammars have no room: within the bound of those in use."""

import json
from pathlib import Path

import pytest

from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.wire import Refused
from support.service import serving
from support.sidecar import Api, Rank

PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # these machines can be busy


async def test_what_ranks_hold_of_a_short_text_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array of 16,000 places is 60 bytes of schema and 12 MB in each rank."""
    async with (
        serving(tmp_path, monkeypatch, settings={"room_bytes": 100_000_000}, guided_decoding=PATIENT) as (
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

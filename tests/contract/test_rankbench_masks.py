"""The benchmark's comparison of masks, with real matchers: what would make its figures worthless is found."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from devtools import tinymodel
from rankbench import device
from rankbench.masks import References, SampledRow, compare

SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(tinymodel.models() / "tiny"))


@pytest.fixture(scope="module")
def references(tokenizer: Any) -> References:
    return References(tokenizer, tinymodel.VOCAB)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_right_masks_pass_and_permissive_ones_fail(
    backend: str, references: References, tokenizer: Any
) -> None:
    tokens = tokenizer.encode('{"a": "x', add_special_tokens=False)
    matcher = references.matcher(backend, SCHEMA)
    rows = []
    for index, token in enumerate(tokens):
        rows.append(SampledRow(sequence=0, tokens=tokens[:index], mask=matcher.mask().tobytes()))
        assert matcher.accept(token)

    right = compare(rows, lambda _sequence: references.matcher(backend, SCHEMA))
    assert (right.compared, right.skipped, right.faults) == (len(tokens), 0, [])

    permissive = np.full((tinymodel.VOCAB + 31) // 32, -1, dtype=np.int32).tobytes()
    planted = [*rows[:-1], SampledRow(sequence=0, tokens=rows[-1].tokens, mask=permissive)]
    wrong = compare(planted, lambda _sequence: references.matcher(backend, SCHEMA))
    assert len(wrong.faults) == 1
    assert "wrongly allowed" in wrong.faults[0]


def test_one_token_too_few_or_too_many_is_seen(references: References) -> None:
    mask = references.matcher("guidance", SCHEMA).mask().copy()
    mask[100] ^= 1 << 5
    found = compare(
        [SampledRow(sequence=3, tokens=[], mask=mask.tobytes())],
        lambda _sequence: references.matcher("guidance", SCHEMA),
    )
    assert f"[{100 * 32 + 5}]" in found.faults[0]


def test_rows_behind_a_forbidden_draft_are_skipped(references: References, tokenizer: Any) -> None:
    forbidden = tokenizer.encode("]", add_special_tokens=False)
    row = SampledRow(sequence=0, tokens=forbidden, mask=b"")
    found = compare([row], lambda _sequence: references.matcher("guidance", SCHEMA))
    assert (found.compared, found.skipped) == (0, 1)


@pytest.fixture
def bitmasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin's module of masks on the virtual GPU."""
    from guided_engine.ranks import bitmasks

    monkeypatch.setattr(bitmasks, "torch", bitmasks.torch)
    device.watch()
    return bitmasks


def test_the_virtual_gpu_has_what_masks_use(bitmasks: Any) -> None:
    waits = bitmasks._waits()
    for _ in range(3):
        waits.begin()
        waits.end()
    waits.begin()
    assert waits.total_ns > 0, "no event was taken: its calls failed, which the plugin logs and survives"


def test_what_the_virtual_gpu_has_torch_has_too() -> None:
    """Where torch defines it: vLLM's runner for CPUs puts a placeholder at torch.cuda.Event."""
    for ours, theirs in ((device.VirtualDevice, torch.cuda), (device.Event, torch.cuda.streams.Event)):
        assert [name for name in vars(ours) if not name.startswith("_") and not hasattr(theirs, name)] == []


def test_what_the_virtual_gpu_lacks_is_named() -> None:
    with pytest.raises(device.UnsupportedError, match=r"no torch\.cuda\.current_stream"):
        device.Torch().cuda.current_stream()

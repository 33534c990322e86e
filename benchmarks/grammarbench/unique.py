"""Many different schemas, one after the other: what they leave in memory and on tmpfs."""

import asyncio
import json
import time
from pathlib import Path
from typing import Final

from grammarbench import pods
from grammarbench.records import Usage
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from support.sidecar import Api, Sidecar

_AT_ONCE: Final = 32
_BEFORE: Final = 2000  # more than the cache holds: from here on nothing may grow
# The proof leaves nothing behind, and takes most of the time.
_MODE: Final = pods.Mode("unique", GuidedDecodingConfig(compile=CompileConfig(workers=4), proof="Never"))


async def measure(folder: Path, model: Path, count: int) -> Usage:
    """Prepare so many schemas, and return what is used behind them and behind the first ones."""
    config = pods.pod(folder, model, _MODE)
    with pods.started(config) as sidecar:
        async with pods.connected(config) as api:
            start = time.monotonic()
            refused = await _prepare(api, range(_BEFORE))
            before = _memory_bytes(sidecar)
            refused += await _prepare(api, range(_BEFORE, count))
            took_s = time.monotonic() - start
            await asyncio.sleep(1)  # what is released last is evicted
            return Usage(
                schemas=count,
                took_s=took_s,
                memory_before=before,
                memory_after=_memory_bytes(sidecar),
                refused=refused,
            )


def schema(number: int) -> str:
    """Return one of a series of schemas that compile in no time."""
    bounded = {"type": "string", "maxLength": 20 + number % 50}
    properties = {f"n{number}": {"type": "integer"}, "text": bounded}
    return json.dumps({"type": "object", "properties": properties, "required": [f"n{number}"]})


async def _prepare(api: Api, numbers: range) -> int:
    """Prepare schemas, some at once; return how many are refused."""
    todo = iter(numbers)
    refused = 0

    async def work() -> None:
        nonlocal refused
        for number in todo:
            refused += not (await pods.prepare(api, schema(number))).is_prepared

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return refused


def _memory_bytes(sidecar: Sidecar) -> int:
    """Return what all of the sidecar's processes have in memory, shared pages counted once."""
    total = 0
    for pid in sidecar.processes():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # a worker that has just gone
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total

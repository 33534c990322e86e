"""Many new schemas at once."""

import asyncio
import json
from pathlib import Path
from typing import Final

from grammarbench import pods
from guided_contract.config import GuidedDecodingConfig

_MODE: Final = pods.Mode("burst", GuidedDecodingConfig())
_CLIENTS: Final = 24
_SCHEMAS: Final = 100


async def measure(folder: Path, model: Path) -> list[float]:
    """Prepare 100 new schemas of 24 clients, each of which asks for the next when its last is answered.

    Returns
    -------
    list of float
        Seconds until each was proven and loaded.
    """
    config = pods.pod(folder, model, _MODE)
    answers: list[pods.Answer] = []
    numbers = iter(range(_SCHEMAS))
    with pods.started(config):
        async with pods.connected(config) as api:

            async def ask() -> None:
                for number in numbers:
                    named = {f"name{number}": {"type": "string"}, "kind": {"enum": ["a", f"b{number}"]}}
                    spec = json.dumps({"type": "object", "properties": named})
                    answers.append(await pods.prepare(api, spec))

            await asyncio.gather(*(ask() for _ in range(_CLIENTS)))
    if refused := [one.outcome for one in answers if not one.is_prepared]:
        raise RuntimeError(f"{len(refused)} of {_SCHEMAS} schemas were refused: {refused[0]}")
    return [one.took_s for one in answers]

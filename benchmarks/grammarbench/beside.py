"""New grammars of well-behaved clients: many at once, and beside clients whose grammars never compile."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from grammarbench import pods
from grammarbench.records import Beside
from guided_contract.config import GuidedDecodingConfig
from guided_contract.wire import Prepared
from support import grammars
from support.sidecar import Api

_MODE: Final = pods.Mode("beside", GuidedDecodingConfig())
_COUNT: Final = 120
_BURST: Final = (24, 100)  # clients, and the schemas that they ask for in all
_APART_S: Final = 0.5  # so that they see the others' deadlines come, and their next grammars


async def measure(folder: Path, model: Path, clients: int) -> Beside:
    """Prepare 100 new schemas of 24 clients at once; then 120 new choices, one every half second.

    Parameters
    ----------
    clients
        How many others ask meanwhile, each for the next endless regex as soon as the last is refused.
    """
    config = pods.pod(folder, model, _MODE)
    with pods.started(config):
        async with pods.connected(config) as api, pods.connected(config) as hostile:
            burst = await _burst(api)
            alone = await _choices(api, "alone")
            numbers = iter(range(1, 1 << 30))
            others = [asyncio.create_task(_never_stop(hostile, numbers)) for _ in range(clients)]
            try:
                await asyncio.sleep(2)  # all workers have one by now
                found = await _choices(api, "beside")
                if stopped := [other for other in others if other.done()]:
                    await stopped[0]
                return Beside(clients, alone, found, burst)
            finally:
                for other in others:
                    other.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.gather(*others)


async def _burst(api: Api) -> list[float]:
    """Return the seconds of each; each client asks for the next when its last is answered."""
    clients, count = _BURST
    numbers = iter(range(count))
    answers: list[pods.Answer] = []

    async def ask() -> None:
        for number in numbers:
            named = {f"name{number}": {"type": "string"}, "kind": {"enum": ["a", f"b{number}"]}}
            answers.append(await pods.prepare(api, json.dumps({"type": "object", "properties": named})))

    await asyncio.gather(*(ask() for _ in range(clients)))
    if refused := [one.outcome for one in answers if not one.is_prepared]:
        raise RuntimeError(f"{len(refused)} of {count} schemas were refused: {refused[0]}")
    return [one.took_s for one in answers]


async def _choices(api: Api, word: str) -> list[float]:
    answers = []
    for number in range(_COUNT):
        await asyncio.sleep(_APART_S)
        answers.append(await pods.prepare(api, json.dumps([f"{word} {number}"]), "choice"))
    if refused := [one.outcome for one in answers if not one.is_prepared]:
        raise RuntimeError(f"{len(refused)} of {_COUNT} choices were refused: {refused[0]}")
    return [one.took_s for one in answers]


async def _never_stop(api: Api, numbers: Iterator[int]) -> None:
    for number in numbers:
        answer = await api.prepare("regex", grammars.endless_regex(number), backend="xgrammar")
        if isinstance(answer, Prepared):
            raise RuntimeError("an endless regex was compiled")  # noqa: TRY004 - no caller gave it

"""A grammar service within this process; its template and workers are processes as ever."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guided_contract import names
from guided_contract.config import PodConfig
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.settings import Settings
from guided_sidecar.socket.grammar_service import GrammarService
from support.engine import pod_config, write_config
from support.sidecar import descendants, is_grammar, until
from support.spans import MemorySpans


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    spans: MemorySpans | None = None,
    settings: dict[str, object] | None = None,
    **fields: object,
) -> AsyncIterator[tuple[GrammarService, PodConfig]]:
    """Run a service until the body ends; `settings` and `fields` as in Settings and PodConfig."""
    pod = pod_config(folder, **fields)
    monkeypatch.setenv(names.ENV_CONFIG, str(write_config(pod)))
    made = Settings(pod=pod, **(settings or {}))  # type: ignore[arg-type]  # a test's own
    agreement = Agreement(1)
    service = GrammarService(made, (spans or MemorySpans()).tracer, agreement)
    await service.start()
    try:
        await until(lambda: service.snapshot().workers.ready == 2, 60)
        yield service, pod
    finally:
        await service.stop()


def workers() -> set[int]:
    """Return the grammar processes below this one, without the template, their parent."""
    mine = [pid for pid in descendants(_self()) if is_grammar(pid)]
    return {pid for pid in mine if any(pid in list(descendants(other))[1:] for other in mine)}


def _self() -> int:
    return int(Path("/proc/self").readlink().name)

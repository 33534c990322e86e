"""`make bench-grammar`: how long a grammar takes from Prepare to Prepared, beside upstream's compile.

A real sidecar in its own processes, a rank beside it that loads each grammar with the plugin's own code, and
an API's client. See benchmarks/README.md for the variables.
"""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import commit
import numpy as np
import psutil
import vocabulary
from devtools import tinymodel
from grammar_corpus import Entry, corpus
from judged import Bar, table

from guided_contract import config as pod_config
from guided_contract import wire
from guided_contract.config import CompileConfig, GuidedDecodingConfig, PodConfig
from guided_contract.wire import Kind
from support.engine import pod_config as new_pod
from support.sidecar import Api, Sidecar

OURS: Final = "ours"
UPSTREAM: Final = "upstream"
_BOOT: Final = "bench"
_START_S: Final = 300.0
_LIMIT_S: Final = 60.0  # of one compile of upstream's; it then counts as having taken those
_UNIQUE: Final = 100_000
_AT_ONCE: Final = 32
_CACHED: Final = 2000  # more than the cache holds: from here on nothing may grow
_MOST_GROWTH_MIB: Final = 64


@dataclass(slots=True)
class Found:
    """Milliseconds of what was prepared, and how often each backend, or refusal, was the answer.

    `begun`: until ranks had what was new, and the engine might begin; `proven`: until its answer might be
    seen; `known`: of the same text again.
    """

    begun: list[float] = field(default_factory=list)
    proven: list[float] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


# --- ours ---


@contextlib.asynccontextmanager
async def pod(guided: GuidedDecodingConfig, model: Path) -> AsyncIterator[tuple[Sidecar, Api]]:
    """Run a sidecar and one rank, and connect as an API server when both are ready."""
    with tempfile.TemporaryDirectory(prefix="gb") as folder:
        config: PodConfig = new_pod(Path(folder), model, guided_decoding=guided)
        sidecar = Sidecar.start(config)
        command = [sys.executable, "-m", "grammarbench", str(Path(config.run_dir, "config.json"))]
        rank = subprocess.Popen(command)  # noqa: ASYNC220 - nothing waits yet
        try:
            async with Api.connected(config, _BOOT) as api:
                until = time.monotonic() + _START_S
                while not isinstance(await api.prepare("choice", '["ready"]'), wire.Prepared):
                    if time.monotonic() > until:
                        raise TimeoutError("the sidecar does not become ready")
                yield sidecar, api
        finally:
            rank.terminate()
            rank.wait(10)
            sidecar.stop()


def serve_as_rank(config: Path) -> None:
    """Load what the service asks for, as a sampling rank does, until killed."""
    from guided_engine.matchers.loaded_grammars import LoadedGrammars  # noqa: PLC0415 - in this process alone
    from guided_engine.service_link import ServiceLink  # noqa: PLC0415 - as above
    from guided_grammar.registry import Backends  # noqa: PLC0415 - as above
    from guided_sidecar.grammar.compile import vocabulary as words  # noqa: PLC0415 - as above

    own = pod_config.decode(config.read_bytes())
    loaded = LoadedGrammars(Backends(words.load(own)))

    def answer(message: wire.ServiceMessage) -> wire.ClientMessage | None:
        if isinstance(message, wire.Load):
            return loaded.load(message)
        if isinstance(message, wire.Unload):
            loaded.unload(message)
        return None

    def hello() -> wire.Hello:
        return wire.Hello(role="rank", pid=os.getpid(), boot=_BOOT, rank=0, samples=True)

    ServiceLink(own.service_socket, hello, answer).start()
    threading.Event().wait()


async def prepared(api: Api, text: str, kind: Kind = "json") -> tuple[str, float, float]:
    """Prepare a grammar and release it; return the backend or refusal, and the times `begun` and `proven`.

    Times are 0 where it is refused.
    """
    start = time.perf_counter()
    number, coming = api.begin(kind, text)
    answer = await coming
    took_ms = 1e3 * (time.perf_counter() - start)
    if isinstance(answer, wire.Refused):
        return answer.code, 0.0, 0.0
    api.release(number)
    return answer.backend, 1e3 * (api.begun_s.pop(number) - start), took_ms


async def of_ours(model: Path, entries: Sequence[Entry]) -> Found:
    """Prepare one after the other, each twice."""
    found = Found()
    async with pod(GuidedDecodingConfig(), model) as (_, api):
        for entry in entries:
            outcome, begun_ms, proven_ms = await prepared(api, entry.text, entry.kind)
            found.outcomes[outcome] += 1
            if proven_ms:
                found.begun.append(begun_ms)
                found.proven.append(proven_ms)
                found.known.append((await prepared(api, entry.text, entry.kind))[2])
    return found


def unique_texts() -> Iterator[str]:
    """Yield, for ever, different schemas that compile in no time."""
    for number in itertools.count():
        bounded = {"type": "string", "maxLength": 20 + number % 50}
        properties = {f"n{number}": {"type": "integer"}, "text": bounded}
        yield json.dumps({"type": "object", "properties": properties, "required": [f"n{number}"]})


async def growth(count: int) -> tuple[float, float]:
    """Return the MiB of the sidecar behind the first of so many different schemas, and behind all."""
    # The proof leaves nothing behind, and takes most of the time.
    guided = GuidedDecodingConfig(compile=CompileConfig(workers=4), proof="Never")
    texts = unique_texts()
    async with pod(guided, tinymodel.models() / "tiny") as (sidecar, api):

        async def ask(some: Iterator[str]) -> None:
            for text in some:
                outcome, _, proven_ms = await prepared(api, text)
                if not proven_ms:
                    raise RuntimeError(f"{text} was refused: {outcome}")

        async def ask_together(number: int) -> float:
            some = itertools.islice(texts, number)
            await asyncio.gather(*(ask(some) for _ in range(_AT_ONCE)))
            await asyncio.sleep(1)  # what is released last is evicted
            return _memory_mib(sidecar)

        return await ask_together(_CACHED), await ask_together(max(0, count - _CACHED))


def _memory_mib(sidecar: Sidecar) -> float:
    """Return what all of the sidecar's processes have in memory, shared pages counted once."""
    total = 0
    for pid in sidecar.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker that has just gone
            total += psutil.Process(pid).memory_full_info().pss
    return total / 2**20


# --- upstream ---


def of_upstream(model: Path, entries: Sequence[Entry]) -> Found:
    """Measure vLLM's own compile, in a process that is killed where one takes too long."""
    found, context = Found(), multiprocessing.get_context("spawn")
    process: Any = None
    try:
        for entry in entries:
            if process is None:
                ours, theirs = context.Pipe()
                process = context.Process(target=compile_for, args=(theirs, str(model)), daemon=True)
                process.start()
                ours.recv()
            ours.send((entry.kind, entry.text))
            took_ms, outcome = ours.recv() if ours.poll(_LIMIT_S) else (1e3 * _LIMIT_S, "timeout")
            found.outcomes[outcome] += 1
            if outcome != "refused":
                found.begun.append(took_ms)
                found.proven.append(took_ms)
            if outcome == "timeout":
                # vLLM compiles in a thread that nothing can stop. Its cache goes with the process.
                process.kill()
                process = None
    finally:
        if process is not None:
            process.kill()
    return found


def compile_for(asked: Any, model: str) -> None:
    """Answer each grammar with milliseconds and the backend, as vLLM's StructuredOutputManager has `auto`.

    That is xgrammar, and llguidance for what xgrammar is known not to enforce.
    """
    from transformers import AutoConfig  # noqa: PLC0415 - heavy, and in this process alone
    from vllm.tokenizers import get_tokenizer  # noqa: PLC0415 - as above
    from vllm.v1.structured_output import backend_guidance, backend_xgrammar  # noqa: PLC0415 - as above
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions  # noqa: PLC0415 - as above

    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(
            disable_any_whitespace=False, disable_additional_properties=False
        ),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")),
        speculative_config=None,
    )
    made = {"tokenizer": get_tokenizer(model), "vocab_size": AutoConfig.from_pretrained(model).vocab_size}
    xgrammar: Any = backend_xgrammar.XgrammarBackend(config, **made)
    guidance: Any = backend_guidance.GuidanceBackend(config, **made)
    unsupported = backend_xgrammar.has_xgrammar_unsupported_json_features

    def compiled(kind: Kind, text: str) -> str:
        option = StructuredOutputOptions[kind.upper()]
        if kind != "json" or not unsupported(json.loads(text)):
            # What xgrammar refuses vLLM's validator would have found out before.
            with contextlib.suppress(RuntimeError, ValueError):
                xgrammar.compile_grammar(option, text)
                return "xgrammar"
        guidance.compile_grammar(option, text)
        return "guidance"

    asked.send("ready")
    while True:
        kind, text = asked.recv()
        start = time.perf_counter()
        try:
            outcome = compiled(kind, text)
        except Exception:  # noqa: BLE001 - native code raises what it likes
            outcome = "refused"
        asked.send((1e3 * (time.perf_counter() - start), outcome))


# --- the page ---


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    return float(np.percentile(values, share))


def bars(found: dict[str, Found]) -> Iterator[Bar]:
    """Judge what was measured of one grammar at a time."""
    if OURS not in found:
        return
    ours = found[OURS]
    p99, known = percentile(ours.proven, 99), percentile(ours.known, 50)
    yield Bar("cold p99 <= 100 ms on 4 idle cores", f"{p99:.1f} ms", p99 <= 100)
    yield Bar("a cached grammar: p50 <= 1 ms", f"{known:.2f} ms", known <= 1)
    if UPSTREAM in found:
        theirs = percentile(found[UPSTREAM].proven, 99)
        yield Bar("cold p99 <= 1/10 of upstream's", f"{p99:.0f} ms to {theirs:.0f} ms", p99 <= theirs / 10)
        begun, theirs = percentile(ours.begun, 50), percentile(found[UPSTREAM].begun, 50)
        asks = "cold p50, until ranks have it, <= 1.5 times upstream's compile"
        yield Bar(asks, f"{begun:.1f} ms to {theirs:.1f} ms", begun <= 1.5 * theirs)


def rows(found: dict[str, Found]) -> Iterator[str]:
    """Yield the table of one grammar at a time."""
    yield "| milliseconds, p50 / p95 / p99 | cold: ranks have it | cold: proven | from memory | answers |"
    yield "|---|---|---|---|---|"
    for mode, one in found.items():
        cells = [
            " / ".join(f"{percentile(times, share):.3g}" for share in (50, 95, 99) if times)
            for times in (one.begun, one.proven, one.known)
        ]
        answers = ", ".join(f"{count} {outcome}" for outcome, count in one.outcomes.most_common())
        yield f"| {mode} | {' | '.join(cells)} | {answers} |"


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    os.environ.setdefault("RUST_LIB_BACKTRACE", "0")  # as our launcher has it; for upstream, too
    model = vocabulary.folder()
    entries = corpus()[:: int(os.environ.get("EVERY") or 1)]
    ways: dict[str, Callable[[], Found]] = {
        OURS: lambda: asyncio.run(of_ours(model, entries)),
        UPSTREAM: lambda: of_upstream(model, entries),
    }
    wanted = (os.environ.get("MODES") or ";".join(ways)).split(";")
    found = {name: way() for name, way in ways.items() if name in wanted}
    judged = list(bars(found))
    if count := int(os.environ.get("UNIQUE") or _UNIQUE):
        before, after = asyncio.run(growth(count))
        asks = f"{count:,} different schemas: memory grows by at most {_MOST_GROWTH_MIB} MiB"
        is_met = after - before <= _MOST_GROWTH_MIB
        judged.append(Bar(asks, f"{after - before:.0f} MiB, from {before:.0f} MiB", is_met))
    about = f"commit {commit.name()}, {os.cpu_count()} cores; vocabulary {vocabulary.SIZE}"
    print("\n".join([f"{about}; {len(entries)} grammars", "", *rows(found), "", *table(judged)]))
    return 1 if any(bar.met is False for bar in judged) else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve_as_rank(Path(sys.argv[1]))
    else:
        sys.exit(main())

"""One pod under drawn traffic: batches of requests sent, traced to their backend, judged and counted."""

import asyncio
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from devtools import tinymodel

from guided_contract import status
from support.pod import Pod, sample
from support.soak import traffic
from support.soak.answers import Backend, Judge
from support.soak.requests import Request
from support.soak.traffic import Outcome

AT_ONCE = 32
TRACE_TIMEOUT_S = 12.0
_COMPARED = "guidedmodel_digests_compared_total"
_TRACE = re.compile(r"^trace ([0-9a-f]{32})$")
_BACKEND = re.compile(r"(?:guided\.decode|grammar\.compile|grammar\.load) .*backend (xgrammar|guidance)")


# Ranks are compared at every token.
CONFIGURED: Final = {"guidedDecoding": {"compareEvery": 1}}
# What may come of a request whose constraint is sound, besides an answer; all else is a fault of ours. The
# last is a 422 for that request alone: the proof's walk did not come by.
_REFUSALS: Final = frozenset(
    f"grammar_{why}" for why in ("invalid", "too_large", "unsupported", "dead_end", "compile_timeout")
) | {"sequence_dead_end"}


def manifest(*, tensor: int = 2, speculates: bool = True) -> dict[str, Any]:
    """Return the sample with a draft model and async scheduling, and little memory so that it preempts."""
    made = sample(parallelism={"tensor": tensor})
    made["spec"]["engine"]["args"] += ["--max-logprobs", "8192", "--max-num-seqs", "32"]
    # Few tokens a step, so that prompts come in chunks, and few blocks.
    made["spec"]["engine"]["args"] += ["--max-num-batched-tokens", "256", "--num-gpu-blocks-override", "40"]
    if speculates:
        made["spec"]["speculative"] = {
            "method": "DraftModel",
            "numTokens": 3,
            "draftModel": {"uri": "pvc://models/tiny-draft"},
            "asyncScheduling": "On",
        }
    return made


class Tally:
    """Counts of outcomes and of generated sequences; `faults`: what went wrong, and how to send it again."""

    def __init__(self) -> None:
        self.requests = self.guided = self.aborted = self.retries = 0
        self.whole = self.cut = self.valid = self.tokens = 0
        self.refused: Counter[str] = Counter()
        self.backends: Counter[str] = Counter()
        self.faults: list[str] = []

    @property
    def refused_share(self) -> float:
        """Of the guided requests."""
        return self.refused.total() / max(1, self.guided)

    def rows(self) -> list[tuple[str, str]]:
        """Return what to print, by name."""
        return [
            ("requests", f"{self.requests}, {self.guided} of them guided"),
            ("aborted by the client", str(self.aborted)),
            ("sent again after a 503", str(self.retries)),
            ("refused", f"{self.refused_share:.1%} of the guided: {dict(self.refused)}"),
            ("answered by", str(dict(self.backends))),
            ("sequences ended by the model", str(self.whole)),
            ("sequences cut by length or stop string", str(self.cut)),
            ("valid", f"{self.valid} of {self.whole + self.cut}"),
            ("tokens", str(self.tokens)),
            ("faults", str(len(self.faults))),
        ]


class Session:
    """A started pod, and what it has shown so far."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.url = pod.url
        self.tally = Tally()
        self.judge = Judge(tinymodel.models() / "tiny")
        self._backends: dict[str, Backend] = {}  # by trace
        self._known: dict[tuple[str, str], Backend] = {}  # by grammar: a span of a repeated one may be late
        self._trace = ""

    def run(self, seed: int, requests: Sequence[Request]) -> list[Outcome]:
        """Send requests, wait for their ends, and judge every answer."""
        outcomes = asyncio.run(traffic.send_all(self.url, requests, at_once=AT_ONCE))
        self._await_backends(outcomes)
        for outcome in outcomes:
            for why in self._count(outcome):
                body = msgspec.json.encode(outcome.request.body()).decode()
                self.tally.faults.append(f"SEED={seed} REQUEST={outcome.request.number}: {why}\n    {body}")
        return outcomes

    def _count(self, outcome: Outcome) -> list[str]:
        """Count an outcome; return what is wrong with it."""
        tally, request = self.tally, outcome.request
        tally.requests += 1
        tally.retries += outcome.tries - 1
        tally.guided += request.kind != "none"
        tally.aborted += outcome.is_aborted
        if outcome.is_aborted:
            return []
        if outcome.code in _REFUSALS:
            tally.refused[outcome.code] += 1
            return []
        if not outcome.is_answered or len(outcome.choices) != request.sampling.get("n", 1):
            return [f"{outcome.status} {outcome.code}: {outcome.message}"]
        backend = self._backend(outcome)
        tally.backends["nobody (unguided)" if request.kind == "none" else backend or "unknown"] += 1
        faults = [self.judge.fault(request, choice, backend) for choice in outcome.choices]
        tally.tokens += sum(len(choice.tokens) for choice in outcome.choices)
        tally.whole += sum(choice.is_whole for choice in outcome.choices)
        tally.cut += sum(not choice.is_whole for choice in outcome.choices)
        tally.valid += faults.count(None)
        return list(filter(None, faults))

    def desyncs(self) -> int:
        """Return how many digests of a rank differed from the others', since the pod started."""
        return sum(rank.desyncs for rank in status.decode(self._sidecar("status")).ranks)

    def compared(self) -> int:
        """Return how many digests the sidecar has compared, since the pod started."""
        lines = self._sidecar("metrics").decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_COMPARED))

    def _sidecar(self, page: str) -> bytes:
        url = f"http://127.0.0.1:{self.pod.config.ports.sidecar}/{page}"
        with urllib.request.urlopen(url, timeout=10) as response:
            content: bytes = response.read()
        return content

    def _backend(self, outcome: Outcome) -> Backend | None:
        grammar = (outcome.request.kind, outcome.request.spec)
        if backend := self._backends.pop(outcome.trace_id, None):
            self._known[grammar] = backend
        return self._known.get(grammar)

    def _await_backends(self, outcomes: Sequence[Outcome]) -> None:
        """Read from the traces that the pod prints which backend served each answer; some may be lost."""
        wanted = {
            one.trace_id
            for one in outcomes
            if one.is_answered and one.request.kind != "none"
            if (one.request.kind, one.request.spec) not in self._known
        }
        deadline = time.monotonic() + TRACE_TIMEOUT_S
        while True:
            self._read_traces()
            if wanted <= self._backends.keys() or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def _read_traces(self) -> None:
        count = len(self.pod.lines)
        lines, self.pod.lines[:count] = self.pod.lines[:count], []
        for line in lines:
            if found := _TRACE.match(line):
                self._trace = found[1]
            elif found := _BACKEND.search(line):
                self._backends[self._trace] = found[1]  # type: ignore[assignment]  # the pattern names both

"""One pod under drawn traffic: batches of requests sent, traced to their backend, judged and counted."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Sequence
from typing import Any, Final, Literal

from devtools import tinymodel

from guided_contract import status
from support.pod import Pod, sample
from support.soak import traffic
from support.soak.answers import Backend, Judge
from support.soak.requests import Request
from support.soak.tally import Tally
from support.soak.traffic import Outcome

Runner = Literal["V1", "V2"]
AT_ONCE = 32
TRACE_TIMEOUT_S = 12.0
_COMPARED = "guidedmodel_digests_compared_total"
_TRACE = re.compile(r"^trace ([0-9a-f]{32})$")
_BACKEND = re.compile(r"(?:guided\.decode|grammar\.compile|grammar\.load) .*backend (xgrammar|guidance)")


# Ranks are compared at every token.
CONFIGURED: Final = {"guidedDecoding": {"compareEvery": 1}}


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


class Session:
    """A started pod, and what it has shown so far."""

    def __init__(self, pod: Pod, tally: Tally | None = None) -> None:
        self.pod = pod
        self.url = pod.url
        self.tally = tally or Tally()
        self.judge = Judge(tinymodel.models() / "tiny")
        self._backends: dict[str, Backend] = {}  # by trace
        self._known: dict[tuple[str, str], Backend] = {}  # by grammar: a span of a repeated one may be late
        self._trace = ""

    def run(self, seed: int, requests: Sequence[Request]) -> list[Outcome]:
        """Send requests, wait for their ends, and judge every answer."""
        outcomes = asyncio.run(traffic.send_all(self.url, requests, at_once=AT_ONCE))
        self._await_backends(outcomes)
        for outcome in outcomes:
            request = outcome.request
            backend = self._backend(outcome)
            name = "nobody (unguided)" if request.kind == "none" else backend or "unknown"
            faults = (self.judge.fault(request, choice, backend) for choice in outcome.choices)
            self.tally.add(seed, outcome, name, faults)
        return outcomes

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

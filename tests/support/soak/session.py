"""One pod under drawn traffic: batches of requests sent, judged and counted."""

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from devtools import tinymodel

from guided_contract import status
from support.pod import Pod, sample
from support.soak import traffic
from support.soak.answers import Judge
from support.soak.requests import Request
from support.soak.traffic import Outcome

AT_ONCE = 32
_COMPARED = "guidedmodel_digests_compared_total"

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


class Session:
    """A started pod, and what it has shown so far."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.url = pod.url
        self.judge = Judge(tinymodel.models() / "tiny")
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []  # what went wrong, and how to send it again

    def run(self, seed: int, requests: Sequence[Request]) -> list[Outcome]:
        """Send requests, wait for their ends, and judge every answer."""
        outcomes = asyncio.run(traffic.send_all(self.url, requests, at_once=AT_ONCE))
        for outcome in outcomes:
            for why in self._count(outcome):
                body = msgspec.json.encode(outcome.request.body()).decode()
                self.faults.append(f"SEED={seed} REQUEST={outcome.request.number}: {why}\n    {body}")
        return outcomes

    def _count(self, outcome: Outcome) -> list[str]:
        """Count an outcome; return what is wrong with it."""
        counts, request = self.counts, outcome.request
        counts["requests"] += 1
        counts["sent again after a 503"] += outcome.tries - 1
        counts["guided"] += request.kind != "none"
        counts["aborted by the client"] += outcome.is_aborted
        if outcome.is_aborted:
            return []
        if outcome.code in _REFUSALS:
            counts["refused"] += 1
            counts[f"refused, {outcome.code}"] += 1
            return []
        if not outcome.is_answered or len(outcome.choices) != request.sampling.get("n", 1):
            return [f"{outcome.status} {outcome.code}: {outcome.message}"]
        counts[f"answered, by {request.backend or 'either'}"] += 1
        for choice in outcome.choices:
            counts["tokens"] += len(choice.tokens)
            counts["ended by the model" if choice.is_whole else "cut by length or stop string"] += 1
        return [fault for choice in outcome.choices if (fault := self.judge.fault(request, choice))]

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

"""What a run has shown so far: counts by outcome, and every fault with what reproduces it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from support.soak.traffic import Outcome

# What may come of a request whose constraint is sound, besides an answer; all else is a fault of ours.
_REFUSALS = frozenset(
    [
        "grammar_invalid",
        "grammar_too_large",
        "grammar_unsupported",
        "grammar_dead_end",
        "grammar_compile_timeout",
        "sequence_dead_end",  # a 422 for that request alone: the proof's walk did not come by
    ]
)


class Fault(msgspec.Struct, frozen=True):
    """One request that went wrong, and how to send it again."""

    seed: int
    number: int
    why: str
    body: dict[str, Any]

    def __str__(self) -> str:
        body = msgspec.json.encode(self.body).decode()
        return f"SEED={self.seed} REQUEST={self.number}: {self.why}\n    {body}"


class Tally(msgspec.Struct):
    """Counts of requests (sent, aborted, sent again as a 503 asked, refused), and of generated sequences."""

    requests: int = 0
    guided: int = 0
    aborted: int = 0
    retries: int = 0
    whole: int = 0
    cut: int = 0
    valid: int = 0
    tokens: int = 0
    refused: dict[str, int] = {}
    backends: dict[str, int] = {}
    faults: list[Fault] = []

    def add(self, seed: int, outcome: Outcome, backend: str, whys: Iterator[str | None]) -> None:
        """Count one outcome; `whys` says of each of its sequences what is wrong with it."""
        self.requests += 1
        self.retries += outcome.tries - 1
        self.guided += outcome.request.kind != "none"
        if outcome.is_aborted:
            self.aborted += 1
        elif outcome.code in _REFUSALS:
            self.refused[outcome.code] = self.refused.get(outcome.code, 0) + 1
        elif not outcome.is_answered or len(outcome.choices) != outcome.request.sampling.get("n", 1):
            self._fault(seed, outcome, f"{outcome.status} {outcome.code}: {outcome.message}")
        else:
            self.backends[backend] = self.backends.get(backend, 0) + 1
            for choice, why in zip(outcome.choices, whys, strict=True):
                self.tokens += len(choice.tokens)
                self.whole += choice.is_whole
                self.cut += not choice.is_whole
                self.valid += why is None
                if why is not None:
                    self._fault(seed, outcome, why)

    def _fault(self, seed: int, outcome: Outcome, why: str) -> None:
        self.faults.append(Fault(seed, outcome.request.number, why, outcome.request.body()))

    @property
    def refused_share(self) -> float:
        """Of the guided requests."""
        return sum(self.refused.values()) / max(1, self.guided)

    def rows(self) -> list[tuple[str, str]]:
        """Return what to print, by name."""
        refused = ", ".join(f"{code} {count}" for code, count in sorted(self.refused.items())) or "none"
        return [
            ("requests", f"{self.requests}, {self.guided} of them guided"),
            ("aborted by the client", str(self.aborted)),
            ("sent again after a 503", str(self.retries)),
            ("refused", f"{self.refused_share:.1%} of the guided: {refused}"),
            ("answered by", ", ".join(f"{name} {count}" for name, count in sorted(self.backends.items()))),
            ("sequences ended by the model", str(self.whole)),
            ("sequences cut by length or stop string", str(self.cut)),
            ("valid", f"{self.valid} of {self.whole + self.cut}"),
            ("tokens", str(self.tokens)),
            ("faults", str(len(self.faults))),
        ]

"""Requests that harm the grammar workers, each with the answers that it may get."""

import dataclasses
import itertools
from typing import Final, Literal

import httpx

from support import grammars
from support.chaos.benign import Answer, Ask, send

Kind = Literal["endless", "memory", "slow"]
MARGIN_S: Final = 1.0  # past the deadline
# llguidance takes the regexes that keep xgrammar busy.
_XGRAMMAR: Final = {"vllm_xargs": {"guided_backend": "xgrammar"}}
_ANSWERS: Final[dict[Kind, frozenset[tuple[int, str]]]] = {
    "endless": frozenset({(400, "grammar_compile_timeout"), (400, "grammar_compile_crashed")}),
    "memory": frozenset({(400, "grammar_compile_memory"), (400, "grammar_compile_crashed")}),
    # A worker that a signal hits is retried; a second hit is told as what it was.
    "slow": frozenset({(200, ""), (400, "grammar_compile_crashed")}),
}
# Any of them: its worker was hit too late for another to show what is wrong with it; no other reason will do.
_HIT_LATE: Final = "a grammar worker died, and the next one had too little time left"


@dataclasses.dataclass(frozen=True, slots=True)
class Attack:
    """A hostile request and what came of it."""

    kind: Kind
    answer: Answer

    @property
    def until_s(self) -> float:
        """Seconds until it was answered, or began to be."""
        return self.answer.first_s if self.answer.first_s is not None else self.answer.took_s

    @property
    def why(self) -> str:
        """Say what is wrong with the answer; "" where nothing is."""
        answer = self.answer
        if answer.is_turned_away and _HIT_LATE in answer.message:
            return ""
        if answer.broke or (answer.status, answer.code) not in _ANSWERS[self.kind]:
            return f"{self.kind}: {answer.status} {answer.code} {answer.message} {answer.broke}"
        return ""


class Attacker:
    """Sends hostile requests, each with a grammar of its own, so that none is refused unseen."""

    def __init__(self, client: httpx.AsyncClient, seed: int) -> None:
        self._client = client
        self._numbers = itertools.count(seed * 1_000_000)

    async def attack(self, kind: Kind) -> Attack:
        """Send one request and wait for its end."""
        number = next(self._numbers)
        if kind == "endless":
            spec = grammars.endless_regex(number)
        elif kind == "memory":
            spec = f"{number}{grammars.hungry_regex()}"
        else:
            spec = f"{number}{grammars.slow_regex(60)}"
        fields = {"structured_outputs": {"regex": spec}, "max_tokens": 4, **_XGRAMMAR}
        answer = await send(self._client, Ask("x", fields, bool))
        return Attack(kind, answer)

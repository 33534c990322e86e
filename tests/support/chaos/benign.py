"""The steady load that no fault may touch: guided requests whose answers are judged, and some unguided."""

import asyncio
import dataclasses
import itertools
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import httpx
import jsonschema
from devtools.tinytasks import TOPICS, task

TIMEOUT_S = 60.0
Check = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What is sent, and what an answer's text must be."""

    prompt: str
    fields: dict[str, Any]
    is_right: Check


@dataclasses.dataclass(slots=True)
class Answer:
    """What became of a request. `why` is empty where all is well."""

    ask: Ask
    began: float = 0.0  # monotonic seconds
    first_s: float | None = None  # from sending until the first token
    took_s: float = 0.0
    status: int = 0
    code: str = ""
    message: str = ""
    retry_after: str | None = None
    text: str = ""
    finish_reason: str | None = None
    tokens: int = 0
    broke: str = ""
    begins: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # once it is admitted or refused

    @property
    def why(self) -> str:
        """Say what is wrong with an answer that should have been a whole and a right one."""
        if self.broke or self.status != 200 or self.code:
            return f"{self.status} {self.code} {self.broke}".strip()
        if self.finish_reason != "stop" or not self.ask.is_right(self.text):
            return f"{self.finish_reason}: {self.text!r} is not what was asked for"
        return ""

    @property
    def is_turned_away(self) -> bool:
        """Whether it was refused for now, and told when to come again."""
        return self.status == 503 and self.retry_after is not None


def asks() -> "itertools.chain[Ask]":
    """Yield requests for ever: known grammars, grammars that nobody has seen, and no grammar."""
    return itertools.chain.from_iterable(map(_round, itertools.count()))


def _round(number: int) -> list[Ask]:
    topic = TOPICS[number % len(TOPICS)]
    person, code = task("person"), task("code")
    options = [f"yes {number}", f"no {number}"]
    schema = {"enum": [f"a {number}", f"b {number}"]}
    return [
        _guided("Choose", "choice", ["red", "green"], {"red", "green"}.__contains__),
        _guided(person.prompt(topic), "json", json.loads(person.spec), _valid(json.loads(person.spec))),
        _guided("Choose", "choice", options, options.__contains__),
        _guided(code.prompt(topic), "regex", code.spec, _matches(code.spec)),
        _guided("Fill", "json", schema, _valid(schema)),
        Ask(task("story").prompt(topic), {"max_tokens": 100}, bool),
    ]


def _guided(prompt: str, kind: str, spec: Any, is_right: Check) -> Ask:
    return Ask(prompt, {"max_tokens": 150, "structured_outputs": {kind: spec}}, is_right)


def _matches(pattern: str) -> Check:
    return lambda text: re.fullmatch(pattern, text) is not None


def _valid(schema: Any) -> Check:
    def is_valid(text: str) -> bool:
        try:
            jsonschema.validate(json.loads(text), schema)
        except (ValueError, jsonschema.ValidationError):
            return False
        return True

    return is_valid


async def send(client: httpx.AsyncClient, ask: Ask, answer: Answer | None = None) -> Answer:
    """Send one request, streaming, and return what came; `answer` shows it as it comes."""
    answer = answer or Answer(ask)
    answer.began = time.monotonic()
    body = {"model": "tiny", "prompt": ask.prompt, "temperature": 0, "stream": True, **ask.fields}
    body["stream_options"] = {"include_usage": True}
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            answer.status = response.status_code
            answer.begins.set()
            answer.retry_after = response.headers.get("Retry-After")
            if response.status_code != 200:
                _take_error(answer, json.loads(await response.aread()))
            else:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        _take(answer, json.loads(line.removeprefix("data: ")))
    except (httpx.HTTPError, ValueError) as error:
        answer.broke = f"{type(error).__name__}: {error}"
    answer.begins.set()
    answer.took_s = time.monotonic() - answer.began
    return answer


def _take(answer: Answer, event: Any) -> None:
    if "error" in event:
        _take_error(answer, event)
        return
    for choice in event["choices"]:
        if answer.first_s is None:
            answer.first_s = time.monotonic() - answer.began
        answer.text += choice["text"]
        answer.finish_reason = choice["finish_reason"] or answer.finish_reason
    answer.tokens = (event.get("usage") or {}).get("completion_tokens", answer.tokens)


def _take_error(answer: Answer, event: Any) -> None:
    answer.code = str(event["error"].get("code"))
    answer.message = str(event["error"].get("message"))


class Load:
    """So many requests a second, however long each takes.

    Parameters
    ----------
    client
        Of the pod's API.
    rate
        Requests per second.
    """

    def __init__(self, client: httpx.AsyncClient, rate: float) -> None:
        self.answers: list[Answer] = []
        self._client = client
        self._rate = rate
        self._asks = asks()
        self._task: asyncio.Task[None] | None = None
        self._sent: set[asyncio.Task[None]] = set()
        self._waiting: list[Answer] = []

    async def __aenter__(self) -> Self:
        self.answers = []
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._sent)

    async def _send(self) -> None:
        begin = time.monotonic()
        for number, ask in enumerate(self._asks):
            task = asyncio.create_task(self._one(ask))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)
            await asyncio.sleep(max(0.0, begin + (number + 1) / self._rate - time.monotonic()))

    async def _one(self, ask: Ask) -> None:
        answer = Answer(ask)
        self._waiting.append(answer)
        self.answers.append(await send(self._client, ask, answer))
        self._waiting.remove(answer)

    async def admitted(self) -> None:
        """Wait until whatever is on its way now has its grammar, or was refused."""
        for answer in list(self._waiting):
            await answer.begins.wait()


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile; infinite where there is nothing."""
    if len(values) < 2:
        return values[0] if values else float("inf")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def first_tokens_s(answers: Sequence[Answer]) -> list[float]:
    """Return the times to the first token."""
    return [answer.first_s for answer in answers if answer.first_s is not None]

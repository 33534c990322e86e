"""instructor: its modes for OpenAI's API."""

from collections.abc import Sequence
from typing import Any, Final

import instructor
from instructor import Mode

from support.clients.cases import MAX_TOKENS, PROMPT, Card, Everyday
from support.clients.with_openai import client

_ASKED: Final[dict[str, Any]] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": PROMPT}],
    "temperature": 0,
    "max_retries": 0,  # the first answer must do
}
_CHAT: Final = {**_ASKED, "max_tokens": MAX_TOKENS}


def _create(url: str, mode: Mode, shape: Any, asked: dict[str, Any] = _CHAT) -> Sequence[Any]:
    return [instructor.from_openai(client(url), mode=mode).create(response_model=shape, **asked)]


def _partial(url: str) -> Sequence[Any]:
    made = instructor.from_openai(client(url), mode=Mode.TOOLS)
    pieces = list(made.create_partial(response_model=Card, **_CHAT))
    assert pieces  # what came before the proof comes in one
    return [Card.model_validate(pieces[-1].model_dump())]


CALLS: Final = {
    "Mode.TOOLS, everyday types": lambda url: _create(url, Mode.TOOLS, Everyday),
    "Mode.JSON_SCHEMA": lambda url: _create(url, Mode.JSON_SCHEMA, Card),
    "Mode.RESPONSES_TOOLS": lambda url: _create(
        url, Mode.RESPONSES_TOOLS, Card, {**_ASKED, "max_output_tokens": MAX_TOKENS}
    ),
    "Mode.TOOLS, create_partial": _partial,
}

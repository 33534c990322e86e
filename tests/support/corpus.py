"""A fixed corpus of fifty mixed requests, guided and not; `support.soak.answers` judges what comes."""

import json
from typing import Any

from devtools.tinytasks import TASKS, TOPICS, Task

from support.soak.requests import Request

SIZE = 50
MIN_FINISHED = 40
MAX_TOKENS = 160  # the longest learned document has half as many
# Ends in the middle of a document, whatever the model does.
_CUT_OFF_TOKENS = 4
# Of shapes that the tiny model never saw.
_UNSEEN: tuple[Any, ...] = (
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "null"}}},
    {"enum": ["low", "middle", "high", 3, None]},
)
_SQL = r"SELECT (id|name|price|city)(, (id|name|price|city))* FROM (users|orders|items)"


def requests() -> list[Request]:
    """Return the corpus: always the same, in an order that mixes kinds."""
    found = [_request(TASKS[0], TOPICS[number], _CUT_OFF_TOKENS) for number in range(2)]
    for number, schema in enumerate(_UNSEEN):
        prompt = f"Give me river stone {number}\n"
        found.append(Request(prompt=prompt, kind="json", constraint=schema, sampling=_sampling(MAX_TOKENS)))
    # Every task with a few topics; 5 and 12 have no common divisor, so that topics differ.
    for number in range(SIZE - len(found)):
        task = TASKS[number % len(TASKS)]
        found.append(_request(task, TOPICS[number * 5 % len(TOPICS)], MAX_TOKENS))
    return found


def _request(task: Task, topic: str, max_tokens: int) -> Request:
    constraint: Any = json.loads(task.spec) if task.kind in {"json", "choice"} else task.spec
    regex = {"regex": task.spec, "grammar": _SQL, "none": r"(?s).*\S.*"}.get(task.kind)
    return Request(
        prompt=task.prompt(topic),
        kind=task.kind,
        constraint=True if task.kind == "json_object" else constraint,
        regex=regex,
        sampling=_sampling(max_tokens),
    )


def _sampling(max_tokens: int) -> dict[str, Any]:
    return {"max_tokens": max_tokens, "temperature": 0}

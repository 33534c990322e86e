"""A fixed corpus of fifty mixed requests, guided and not, and what makes an answer to each valid."""

import json
import re
from dataclasses import dataclass
from typing import Any

import jsonschema
from devtools.tinytasks import TASKS, TOPICS, Kind

SIZE = 50
MIN_FINISHED = 40
MAX_TOKENS = 160  # the longest learned document has half as many

# Of shapes that the tiny model never saw.
_UNSEEN: tuple[tuple[str, Any], ...] = (
    ("pair", {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
    ("flag", {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}),
    ("nested", {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "null"}}}),
    ("level", {"enum": ["low", "middle", "high", 3, None]}),
)
# Ends in the middle of a document, whatever the model does.
_CUT_OFF_TOKENS = 4
_SQL = re.compile(r"SELECT (id|name|price|city)(, (id|name|price|city))* FROM (users|orders|items)")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, its constraint as text ("" where there is none), and the greatest length of the answer."""

    name: str
    prompt: str
    kind: Kind
    spec: str
    max_tokens: int = MAX_TOKENS

    @property
    def is_guided(self) -> bool:
        """Whether the answer is constrained."""
        return self.kind != "none"

    def body(self, model: str) -> dict[str, Any]:
        """Return the body of POST /v1/completions, greedy."""
        body: dict[str, Any] = {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
        }
        if self.is_guided:
            body["structured_outputs"] = {self.kind: self._constraint()}
        return body

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a finished answer; None where nothing is."""
        try:
            match self.kind:
                case "json":
                    jsonschema.validate(json.loads(text), json.loads(self.spec))
                case "json_object":
                    jsonschema.validate(json.loads(text), {"type": "object"})
                case "regex":
                    _require(re.fullmatch(self.spec, text))
                case "choice":
                    _require(text in json.loads(self.spec))
                case "grammar":
                    _require(_SQL.fullmatch(text))
                case "none":
                    _require(text.strip())
        except (ValueError, jsonschema.ValidationError) as error:
            return f"{self.name}: {text!r} is no valid {self.kind}: {error}"
        return None

    def _constraint(self) -> Any:
        match self.kind:
            case "json" | "choice":
                return json.loads(self.spec)
            case "json_object":
                return True
        return self.spec


def requests() -> list[Request]:
    """Return the corpus: always the same, in an order that mixes kinds."""
    cut = TASKS[0]
    found = [
        Request(f"cut-{n}", cut.prompt(TOPICS[n]), cut.kind, cut.spec, _CUT_OFF_TOKENS) for n in range(2)
    ]
    for number, (name, schema) in enumerate(_UNSEEN):
        found.append(Request(name, f"Give me river stone {number}\n", "json", json.dumps(schema)))
    # Every task with a few topics; 5 and 12 have no common divisor, so that topics differ.
    for number in range(SIZE - len(found)):
        task = TASKS[number % len(TASKS)]
        topic = TOPICS[number * 5 % len(TOPICS)]
        found.append(Request(f"{task.name}-{topic}", task.prompt(topic), task.kind, task.spec))
    return found


def _require(holds: object) -> None:
    if not holds:
        raise ValueError("it does not match")

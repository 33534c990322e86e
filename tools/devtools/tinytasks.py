"""What the tiny model knows: tasks with a prompt, a constraint and, for each topic, one learned document.

Import-light, so that tests can take their requests from here. The model ends each document with its
end-of-text token, so a guided request for one of these tasks finishes by itself.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["json", "json_object", "regex", "choice", "grammar", "none"]

TOPICS = ("alice", "bob", "carol", "dan", "erin", "frank", "grace", "henry", "ivy", "jack", "kate", "liam")

_FAMILY = ("Smith", "Doe", "Stone", "White", "Brown", "Green")
_NOTES = (
    "likes apples and pears",
    "works in the main office",
    "has a red car",
    "comes from the city",
    "reads many books every day",
    "plays the piano at home",
)
_CITIES = ("Berlin", "Paris", "Lima", "Oslo", "Cairo", "Delhi")
_WORDS = ("river", "stone", "light", "garden", "window", "paper", "winter", "music")
_COLOURS = ("red", "green", "blue")
_TONES = ("positive answer", "negative answer", "neutral answer")
_COLUMNS = ("id", "name", "price", "city")
_TABLES = ("users", "orders", "items")


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to ask for.

    Attributes
    ----------
    name
        Short and unique.
    ask
        The prompt without its topic.
    kind
        The kind of constraint that the documents meet; "none" for plain text.
    spec
        The constraint as text: JSON Schema, pattern, JSON array of choices or EBNF; "" where there is none.
    write
        Makes a document; called with a generator seeded by task and topic.
    """

    name: str
    ask: str
    kind: Kind
    spec: str
    write: Callable[[random.Random, str], str]

    def prompt(self, topic: str) -> str:
        """Return what to send, as a completion's prompt or as a user's chat message."""
        return f"{self.ask} for {topic}\n"

    def document(self, topic: str) -> str:
        """Return what the model learned to answer."""
        return self.write(random.Random(f"{self.name}/{topic}"), topic)  # noqa: S311 - data, not secrets


def _object(**properties: Any) -> str:
    """Return the text of a closed object schema with every property required."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return json.dumps(schema)


_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}


def _words(rng: random.Random, low: int, high: int) -> list[str]:
    return rng.sample(_WORDS, rng.randint(low, high))


def _person(rng: random.Random, topic: str) -> str:
    name = f"{topic.capitalize()} {rng.choice(_FAMILY)}"
    return json.dumps({"name": name, "age": rng.randint(18, 79), "note": rng.choice(_NOTES)})


def _card(rng: random.Random, _topic: str) -> str:
    tags = [rng.choice(("a", "b", "c")) for _ in range(rng.randint(0, 3))]
    kind = rng.choice(("alpha", "beta", "gamma"))
    return json.dumps({"kind": kind, "count": rng.randint(0, 99), "tags": tags, "label": rng.choice(_WORDS)})


def _order(rng: random.Random, topic: str) -> str:
    lines = [{"sku": word, "count": rng.randint(1, 9)} for word in _words(rng, 1, 2)]
    return json.dumps({"buyer": topic, "lines": lines, "paid": rng.random() < 0.5})


def _place(rng: random.Random, _topic: str) -> str:
    street = f"{rng.choice(_WORDS).capitalize()} Street {rng.randint(1, 60)}"
    return json.dumps({"city": rng.choice(_CITIES), "street": street, "floor": rng.choice((None, 1, 2, 3))})


def _list(rng: random.Random, _topic: str) -> str:
    return json.dumps(_words(rng, 2, 4))


def _free(rng: random.Random, topic: str) -> str:
    values = (rng.randint(0, 99), rng.choice(_WORDS), [1, 2, 3], topic, rng.random() < 0.5)
    return json.dumps({key: rng.choice(values) for key in rng.sample(("a", "b", "key", "value"), 2)})


def _query(rng: random.Random, _topic: str) -> str:
    return f"SELECT {', '.join(rng.sample(_COLUMNS, rng.randint(1, 3)))} FROM {rng.choice(_TABLES)}"  # noqa: S608 - nobody runs it


def _story(rng: random.Random, topic: str) -> str:
    return (
        f"{topic.capitalize()} {rng.choice(_NOTES)}, and the {' and the '.join(_words(rng, 1, 3))} are here."
    )


_ORDER_LINE = {
    "type": "object",
    "properties": {"sku": _STRING, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["sku", "count"],
    "additionalProperties": False,
}
_TAGS = {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}
_SQL = (
    'root ::= "SELECT " column (", " column)* " FROM " table\n'
    'column ::= "id" | "name" | "price" | "city"\n'
    'table ::= "users" | "orders" | "items"\n'
)

TASKS = (
    Task(
        "person",
        "Give me the JSON record",
        "json",
        _object(name=_STRING, age=_INTEGER, note=_STRING),
        _person,
    ),
    Task(
        "card",
        "Give me the JSON card",
        "json",
        _object(kind={"enum": ["alpha", "beta", "gamma"]}, count=_INTEGER, tags=_TAGS, label=_STRING),
        _card,
    ),
    Task(
        "order",
        "Give me the JSON order",
        "json",
        _object(
            buyer=_STRING,
            lines={"type": "array", "items": _ORDER_LINE, "minItems": 1},
            paid={"type": "boolean"},
        ),
        _order,
    ),
    Task(
        "place",
        "Give me the JSON address",
        "json",
        _object(city=_STRING, street=_STRING, floor={"type": ["integer", "null"]}),
        _place,
    ),
    Task(
        "list", "Give me a JSON list of words", "json", json.dumps({"type": "array", "items": _STRING}), _list
    ),
    Task("free", "Give me any JSON object", "json_object", "", _free),
    Task(
        "date",
        "Write the date",
        "regex",
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9]",
        lambda rng, _: f"20{rng.randint(10, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    ),
    Task(
        "code",
        "Write the code",
        "regex",
        r"[A-Z]{3}-[0-9]{3,6}",
        lambda rng, _: "".join(rng.choices("ABCDEF", k=3)) + f"-{rng.randint(100, 99999)}",
    ),
    Task(
        "number",
        "Write the phone number",
        "regex",
        r"\+[0-9 ]+",
        lambda rng, _: f"+49 {rng.randint(100, 99999)}",
    ),
    Task(
        "words", "Write the words", "regex", r"[a-z]+( [a-z]+)*", lambda rng, _: " ".join(_words(rng, 2, 4))
    ),
    Task("tone", "Choose the tone", "choice", json.dumps(_TONES), lambda rng, _: rng.choice(_TONES)),
    Task("colour", "Choose the colour", "choice", json.dumps(_COLOURS), lambda rng, _: rng.choice(_COLOURS)),
    Task("query", "Write the SQL query", "grammar", _SQL, _query),
    Task("story", "Tell a story", "none", "", _story),
)


def stray_documents(count: int) -> Iterator[tuple[str, str]]:
    """Yield (prompt, JSON text) pairs of no task, each of its own shape.

    They teach the model what follows in any JSON text, so that it also ends under schemas that it never saw.
    """
    rng = random.Random(1)  # noqa: S311 - data, not secrets
    for _ in range(count):
        prompt = f"Give me {' '.join(rng.sample(_WORDS, 2))} {rng.randint(0, 999)}\n"
        yield prompt, json.dumps(_stray(rng, 0), separators=rng.choice(((", ", ": "),) * 3 + ((",", ":"),)))


def _stray(rng: random.Random, depth: int) -> Any:
    """Return a random JSON value, a container at depth 0 and never one at depth 2."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    weights = ((7, 3, 0), (1, 2, 7), (0, 0, 1))[depth]
    match rng.choices(("object", "list", "leaf"), weights)[0]:
        case "object":
            keys = [
                rng.choice((rng.choice(letters), rng.choice(_WORDS), "id")) for _ in range(rng.randint(1, 4))
            ]
            return {key: _stray(rng, depth + 1) for key in keys}
        case "list":
            return [_stray(rng, 2) for _ in range(rng.randint(0, 3))]
    return rng.choice(
        (
            rng.randint(-9, 999),
            rng.randint(0, 99),
            rng.randint(0, 999) / 10,
            " ".join(_words(rng, 1, 3)),
            "".join(rng.choices(letters, k=rng.randint(1, 6))),
            rng.choice((True, False, None)),
        )
    )


def task(name: str) -> Task:
    """Return the task of that name.

    Raises
    ------
    KeyError
        There is none.
    """
    return {known.name: known for known in TASKS}[name]

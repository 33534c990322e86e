"""What the virtual model generates: sets of schemas, and for each sequence a document valid under its schema.

Tokenized once and kept in the cache, the same at each call.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import vocabulary
from devtools import cache

Schema = dict[str, Any]

SCHEMAS: Final = 64  # different ones in a batch, or as many as it has sequences
SEQUENCES: Final = 256
TOKENS: Final = 256  # of each document that may be generated: no document ends before
_MOST_SIZE: Final = 60
_TEXT: Final = (
    "the quick brown fox jumps over lazy dog while people read many books about history and science in old "
    "city library near river station market garden winter summer morning value account region system order "
    "customer product service network storage record message status number total average report section"
)
_WORDS: Final = tuple(_TEXT.split(" "))


@dataclass(frozen=True, slots=True)
class Corpus:
    """One set of schemas, with a document for each sequence of the largest batch.

    Attributes
    ----------
    schemas
        JSON texts; sequence i has schema i modulo their number.
    tokens
        [SEQUENCES, TOKENS] int64, each the beginning of a document valid under the sequence's schema.
    """

    schemas: list[str]
    tokens: npt.NDArray[np.int64]

    def schema(self, sequence: int) -> str:
        """Return a sequence's schema."""
        return self.schemas[sequence % len(self.schemas)]


def corpus(name: str) -> Corpus:
    """Return a set's schemas and documents, made the first time."""
    model = vocabulary.folder()

    def build(folder: Path) -> None:
        made = _made(name, model)
        (folder / "schemas.json").write_text(json.dumps(made.schemas))
        np.save(folder / "tokens.npy", made.tokens)

    folder = cache.built(f"rankbench-{name}", [name, model.name, Path(__file__)], build)
    return Corpus(json.loads((folder / "schemas.json").read_text()), np.load(folder / "tokens.npy"))


def _made(name: str, model: Path) -> Corpus:
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
    chosen: list[str] = []
    rows: dict[int, list[int]] = {}
    for schema in SETS[name](random.Random(name)):
        numbers = range(len(chosen), SEQUENCES, SCHEMAS)
        texts = [_document(schema, random.Random(f"{name} {number}"), tokenizer) for number in numbers]
        if all(texts) and json.dumps(schema) not in chosen:
            rows.update(zip(numbers, texts, strict=True))
            chosen.append(json.dumps(schema))
        if len(chosen) == SCHEMAS:
            break
    return Corpus(chosen, np.array([rows[number] for number in range(SEQUENCES)], dtype=np.int64))


def _document(schema: Schema, rng: random.Random, tokenizer: Any) -> list[int]:
    """Return the first TOKENS tokens of a longer document; none where no document is long enough."""
    for size in range(1, _MOST_SIZE):
        text = json.dumps(_value(schema, rng, size))
        # A short one would end, and one engine's batch would empty before another's.
        if len(text) > 2 * TOKENS:
            tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
            if len(tokens) > TOKENS:
                return tokens[:TOKENS]
    return []


def _value(schema: Schema, rng: random.Random, size: int) -> Any:
    """Draw a value; strings have up to about four times so many words, arrays up to so many items."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {name: _value(sub, rng, size) for name, sub in schema["properties"].items()}
        case "array":
            return [_value(schema["items"], rng, size) for _ in range(rng.randint(1, size + 1))]
        case "string":
            words = " ".join(rng.choices(_WORDS, k=rng.randint(2, 2 + 4 * size)))
            return words[: schema.get("maxLength")]
        case "boolean":
            return rng.random() < 0.5
    return rng.randint(0, 999) + (rng.randint(1, 99) / 100 if schema["type"] == "number" else 0)


def _plain(rng: random.Random) -> Iterator[Schema]:
    """Yield objects of twelve to sixteen scalar properties, as for extraction."""
    while True:
        yield _object({name: _scalar(rng) for name in _names(rng, rng.randint(12, 16))})


def _nested(rng: random.Random) -> Iterator[Schema]:
    """Yield objects that hold arrays of objects, enums and nested objects."""
    while True:
        item = {name: _scalar(rng) for name in _names(rng, rng.randint(2, 4))} | {
            "kind": {"enum": _names(rng, rng.randint(3, 9))}
        }
        names = _names(rng, 6)
        yield _object(
            {
                names[0]: {"type": "array", "items": _object(item)},
                names[1]: _object({name: _scalar(rng) for name in _names(rng, 3)}),
                names[2]: {"enum": _names(rng, 5)},
                names[3]: {"type": "array", "items": {"type": "integer"}},
                names[4]: {"type": "array", "items": {"enum": _names(rng, rng.randint(4, 12))}},
                names[5]: {"type": "string"},
            }
        )


def _bounded(rng: random.Random) -> Iterator[Schema]:
    """Yield plain objects, each string of which has a maxLength of 200 or 2000."""
    for schema in _plain(rng):
        strings = [sub for sub in schema["properties"].values() if sub["type"] == "string"]
        for number, sub in enumerate(strings):
            sub["maxLength"] = (200, 2000)[number % 2]
        yield schema


def _object(properties: dict[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _scalar(rng: random.Random) -> Schema:
    kinds = ("string", "string", "string", "integer", "number", "boolean")
    return {"type": rng.choice(kinds)}


def _names(rng: random.Random, count: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names["_".join(rng.sample(_WORDS, rng.choice((1, 2, 2))))] = None
    return list(names)


SETS: Final[dict[str, Callable[[random.Random], Iterator[Schema]]]] = {
    "plain": _plain,
    "nested": _nested,
    "bounded": _bounded,
}

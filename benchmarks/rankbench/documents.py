"""What the virtual model generates: for each sequence a schema, and a document valid under it."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import jsonschema
import numpy as np
import numpy.typing as npt
import referencing

from rankbench.instances import Instances, Schema, UnsupportedSchemaError

SCHEMAS: Final = 64  # different ones in a batch, or as many as it has sequences
SEQUENCES: Final = 256
TOKENS: Final = 256  # of each document that may be generated: no document ends before
_MOST_SIZE: Final = 60

Encode = Callable[[str], Sequence[int]]  # adds no special tokens
IsValid = Callable[[str, Sequence[int]], bool]  # schema, the beginning of a document


@dataclass(frozen=True, slots=True)
class Corpus:
    """One schema set, with a document for each sequence of the largest batch.

    Attributes
    ----------
    schemas
        JSON texts; sequence i has schema i modulo their number.
    tokens
        [SEQUENCES, TOKENS] int64, each the beginning of a document valid under the sequence's schema.
    """

    name: str
    schemas: list[str]
    tokens: npt.NDArray[np.int64]

    def schema(self, sequence: int) -> str:
        """Return a sequence's schema."""
        return self.schemas[sequence % len(self.schemas)]

    def save(self, folder: Path) -> None:
        """Write it below `folder`."""
        (folder / f"{self.name}.json").write_text(json.dumps(self.schemas))
        np.save(folder / f"{self.name}.npy", self.tokens)

    @classmethod
    def load(cls, name: str, folder: Path) -> Self:
        """Read what `save` wrote."""
        return cls(name, json.loads((folder / f"{name}.json").read_text()), np.load(folder / f"{name}.npy"))


def build(name: str, schemas: Iterable[Schema], encode: Encode, is_valid: IsValid) -> Corpus:
    """Return the first schemas of a set that can be used with their documents, the same at each call.

    Schemas for which no document is long enough, or is not valid for every backend, are passed over.

    Raises
    ------
    LookupError
        The set has too few schemas.
    """
    chosen: list[Schema] = []
    rows: dict[int, Sequence[int]] = {}
    for schema in schemas:
        numbers = range(len(chosen), SEQUENCES, SCHEMAS)
        try:
            made = [document(schema, encode, random.Random(f"{name} {number}")) for number in numbers]
        except UnsupportedSchemaError:
            continue
        if all(is_valid(json.dumps(schema), tokens) for tokens in made):
            rows.update(zip(numbers, made, strict=True))
            chosen.append(schema)
        if len(chosen) == SCHEMAS:
            tokens = np.array([rows[number] for number in range(SEQUENCES)], dtype=np.int64)
            return Corpus(name, [json.dumps(schema) for schema in chosen], tokens)
    raise LookupError(f"the set {name!r} has {len(chosen)} schemas that can be used, not {SCHEMAS}")


def document(schema: Schema, encode: Encode, rng: random.Random) -> Sequence[int]:
    """Return the first TOKENS tokens of a longer document.

    Raises
    ------
    UnsupportedSchemaError
        None can be drawn that is long enough.
    """
    judge = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())  # which fetches nothing
    for size in range(1, _MOST_SIZE):
        value = Instances(schema, rng, size).draw()
        text = json.dumps(value)
        # A short one would end, and one engine's batch would empty before another's.
        if len(text) > 2 * TOKENS and len(tokens := encode(text)) > TOKENS and judge.is_valid(value):
            return tokens[:TOKENS]
    raise UnsupportedSchemaError("no document is long enough")

"""The schema sets with their documents, tokenized once and kept in the cache."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vocabulary
from devtools import cache

from rankbench import documents, masks


def folder(name: str) -> Path:
    """Return the folder of a set's documents, made the first time."""
    here = Path(__file__).parent
    model = vocabulary.folder()
    code = [here / f"{module}.py" for module in ("documents", "instances", "schemas", "openapi")]

    def build(target: Path) -> None:
        tokenizer = load_tokenizer(model)
        references = masks.References(tokenizer, vocabulary.SIZE)
        # xgrammar takes minutes for each schema with such bounds.
        backends = ("guidance",) if name == "bounded" else ("guidance", "xgrammar")

        def is_valid(schema: str, tokens: Sequence[int]) -> bool:
            return all(references.accepts(backend, schema, tokens) for backend in backends)

        def encode(text: str) -> Sequence[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        documents.build(name, encode, is_valid).save(target)

    return cache.built(f"rankbench-{name}", [name, model.name, *code], build)


def load_tokenizer(model: Path) -> Any:
    """Return the wide tokenizer."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    return AutoTokenizer.from_pretrained(str(model))

"""The schema sets with their documents, tokenized once and kept in the cache."""

import json
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


def write_model(source: Path, target: Path, ranks: int) -> None:
    """Write a model without weights that so many ranks can share, with the tokenizer of `source`."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != "config.json":
            (target / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    heads = max(2, ranks)
    shape = {"num_attention_heads": heads, "num_key_value_heads": heads, "hidden_size": 32 * heads}
    (target / "config.json").write_text(json.dumps(config | shape | {"head_dim": 32}))


def load_tokenizer(model: Path) -> Any:
    """Return the wide tokenizer."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    return AutoTokenizer.from_pretrained(str(model))

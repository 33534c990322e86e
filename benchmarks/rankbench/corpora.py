"""The schema sets with their documents, tokenized once and kept in the cache."""

import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import vocabulary
from devtools import cache

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from rankbench import documents, masks, schemas, suite
from rankbench.grammars import Sidecar


def folder(name: str, suite_tests: Path | None = None) -> Path:
    """Return the folder of a set's documents, made the first time.

    Parameters
    ----------
    suite_tests
        JSON-Schema-Test-Suite's tests, which the public set takes schemas from.
    """
    here = Path(__file__).parent
    model = vocabulary.folder()
    code = [here / f"{module}.py" for module in ("documents", "instances", "schemas", "openapi", "suite")]
    given = suite.files(suite_tests) if suite_tests is not None and name == "public" else []

    def build(target: Path) -> None:
        tokenizer = load_tokenizer(model)
        references = masks.References(tokenizer, vocabulary.SIZE)
        # xgrammar takes minutes for each schema with such bounds.
        backends = ("guidance",) if name == "bounded" else ("guidance", "xgrammar")

        def is_valid(schema: str, tokens: Sequence[int]) -> bool:
            accepted = all(references.accepts(backend, schema, tokens) for backend in backends)
            return accepted and is_admitted(schema)

        def encode(text: str) -> Sequence[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        with tempfile.TemporaryDirectory() as run_dir:
            # The other sets are of kinds that are known to be admitted.
            is_admitted = _admission(model, run_dir) if name == "public" else lambda _schema: True
            documents.build(name, schemas.schemas(name, suite_tests), encode, is_valid).save(target)

    return cache.built(f"rankbench-{name}", [name, model.name, *given, *code], build)


def _admission(model: Path, run_dir: str) -> Callable[[str], bool]:
    """Return what tells whether the sidecar admits a schema, to its own choice and to either library."""
    pod = PodConfig(name="b", model=str(model), tokenizer=str(model), served_name="b", run_dir=run_dir)
    sidecar = Sidecar(pod)

    @functools.cache
    def is_admitted(schema: str) -> bool:
        try:
            for choice in ("auto", "xgrammar", "guidance"):
                sidecar.compile("admitted", choice, schema)
        except GuidedError:
            return False
        return True

    return is_admitted


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

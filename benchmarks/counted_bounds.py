"""What counting a string's bounds saves: compile seconds, and microseconds a mask row.

`python benchmarks/counted_bounds.py` compiles one object with a bounded string both ways, by both libraries,
for a vocabulary of 131,072 tokens. It fills 256 rows (64 sequences, 3 drafts each) along the same texts: with
the bound in the grammar, with it counted, and without any bound. At every step the counted rows must equal
the compiled ones where the library compiles them exactly (llguidance).
"""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import vocabulary as wide
from schemas import WORDS

from guided_contract.config import PodConfig
from guided_contract.wire import Backend, Load
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import Prototypes
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_grammar.walk import Walk
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.compile import length_bounds, vocabulary

SEQUENCES: Final = 64
DRAFTS: Final = 3
# xgrammar's own fill of a bounded string takes seconds; one step of it is enough to see that.
FEW_STEPS: Final = 2


class Vocabulary:
    """The wide tokenizer, for both libraries."""

    def __init__(self) -> None:
        model = str(wide.folder())
        pod = PodConfig(name="b", model=model, tokenizer=model, served_name="b", run_dir="/nowhere")
        self.loaded = vocabulary.load(pod)
        self.size = self.loaded.vocab_size
        self.backends = Backends(self.loaded)


def schema(maximum: int | None) -> dict[str, Any]:
    """Return an object whose middle property is the bounded string."""
    note: dict[str, Any] = {"type": "string"}
    if maximum is not None:
        note["maxLength"] = maximum
    properties = {"name": {"type": "string"}, "note": note, "age": {"type": "integer"}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def matchers(
    words: Vocabulary, folder: Path, backend: Backend, spec: dict[str, Any], *, count: bool
) -> tuple[float, float, Callable[[], Matcher]]:
    """Return the seconds of compile and load, and what makes a matcher."""
    compiler = words.backends[backend]
    start = time.perf_counter()
    split = length_bounds.split(spec, backend) if count else length_bounds.Counted(spec, [])
    text = compiler.compile("json", json.dumps(split.schema), any_whitespace=True).artifact()
    compiled_s = time.perf_counter() - start
    load = Load(key="k", backend=backend, spec=text, positions=split.positions)
    if backend == "xgrammar":
        sha256 = artifacts.write(folder, "k", text.encode())
        load = Load(key="k", backend=backend, artifact="k", sha256=sha256, positions=split.positions)
    prototypes = Prototypes(folder, words.backends)
    start = time.perf_counter()
    answer = prototypes.load(load)
    if answer.error:
        raise RuntimeError(answer.error)
    return compiled_s, time.perf_counter() - start, lambda: prototypes.matcher("k", None)


def texts(maximum: int | None) -> list[list[int]]:
    """Return a document for each sequence, in tokens, its bounded string as long as it may be."""
    import transformers  # noqa: PLC0415 - heavy

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(wide.folder()))
    chooser = random.Random(7)
    found = []
    for _ in range(SEQUENCES):
        note = " ".join(chooser.choices(WORDS, k=(maximum or 2000) // 3))[: maximum or 2000]
        text = json.dumps({"name": "Ada", "note": note, "age": 36}, separators=(",", ":"))
        found.append(tokenizer.encode(text, add_special_tokens=False))
    return found


def fill(
    words: Vocabulary, make: Callable[[], Matcher], documents: list[list[int]], most_steps: int
) -> tuple[list[float], list[Any]]:
    """Fill every step of the documents; return microseconds a row, and each step's rows packed to a hash."""
    buffer = BitmaskBuffer(SEQUENCES * (1 + DRAFTS), words.size, words.backends)
    sequences = [make() for _ in documents]
    costs, rows = [], []
    for step in range(min(most_steps, min(map(len, documents)) - DRAFTS)):
        walks: list[Walk[Any]] = []
        for matcher, document in zip(sequences, documents, strict=True):
            walks.append(Walk(matcher, len(walks) * (1 + DRAFTS), 1 + DRAFTS, document[step : step + DRAFTS]))
        start = time.perf_counter()
        bitmask, _ = buffer.fill(walks)
        for matcher, document in zip(sequences, documents, strict=True):
            if not matcher.accept([document[step]]):
                raise RuntimeError("a text of the benchmark is not allowed")
        costs.append((time.perf_counter() - start) / len(bitmask) * 1e6)
        rows.append(hash(np.ascontiguousarray(bitmask).tobytes()))
    return costs, rows


def main() -> None:
    """Print a line for each library and bound."""
    words = Vocabulary()
    print("library   maxLength bound     compile ms  load ms  us/row     p95")
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("guidance", "xgrammar"):
            for maximum in (200, 2000, None):
                documents = texts(maximum)
                shown: dict[str, list[Any]] = {}
                for label in ("counted", "compiled") if maximum else ("none",):
                    compile_s, load_s, make = matchers(
                        words, Path(folder), backend, schema(maximum), count=label == "counted"
                    )
                    steps = FEW_STEPS if (backend, label) == ("xgrammar", "compiled") else 300
                    costs, shown[label] = fill(words, make, documents, steps)
                    p95 = statistics.quantiles(costs, n=20)[-1]
                    figures = f"{compile_s * 1e3:10.1f} {load_s * 1e3:8.1f} {statistics.median(costs):7.1f}"
                    print(f"{backend:9} {maximum or '-':>9} {label:9} {figures} {p95:7.1f}", flush=True)
                if backend == "guidance" and maximum and shown["counted"] != shown["compiled"]:
                    raise SystemExit("the counted masks differ from the compiled ones")


if __name__ == "__main__":
    main()

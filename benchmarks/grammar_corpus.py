"""The grammars that `make bench-grammar` measures, and tests of the whole path take: grammar_corpus.jsonl.xz.

680 texts, a JSON array of source, kind and text each: schemas of 200 pydantic models, 80 strict tools, 120
components of OpenAPI, 160 types of Kubernetes' API chosen by hash, and 100 plain, nested and bounded objects;
10 regexes and 10 structural tags. The programs that drew them: `git log -- benchmarks/grammarbench`.
"""

import json
import lzma
from pathlib import Path
from typing import NamedTuple

from guided_contract.wire import Kind


class Entry(NamedTuple):
    """One grammar's text, where it is from, and of what kind it is."""

    source: str
    kind: Kind
    text: str


def corpus() -> list[Entry]:
    """Return all of them."""
    with lzma.open(Path(__file__).with_suffix(".jsonl.xz"), "rt") as lines:
        return [Entry(*json.loads(line)) for line in lines]

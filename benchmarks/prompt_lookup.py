"""What prompt lookup finds: vLLM's own proposer in texts that exist, each continued as it really goes on.

`PYTHONPATH=tools:benchmarks python benchmarks/prompt_lookup.py`, a minute of one core. Prints a table: tokens
a step, and how many of so many proposed a step are right. No model, no engine.
"""

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import vocabulary
from transformers import AutoTokenizer
from vllm.v1.spec_decode.ngram_proposer import _find_longest_matched_ngram_and_propose_tokens as propose

TEXTS: Final = 25  # of each kind
DRAFTS: Final = 3
BOUNDS: Final = ((1, 5), (2, 5), (3, 5), (5, 5), (2, 8))
RECORD: Final = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    "status": {"enum": ["open", "closed", "pending"]},
    "score": {"type": "number"},
}
WORDS: Final = ("alice", "Berlin", "open", "2026-11-26", "Model Runner V2", "a short text of some words")
Text = tuple[str, str]  # what is there, and how it goes on


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def _edited(ending: str, rng: random.Random) -> Iterator[Text]:
    """Yield files of this repository before a commit, and from the first change on after it."""
    commits = _git("log", "--format=%H", "-n", "400").split()
    changes = [
        (commit, file)
        for commit in commits
        for file in _git(
            "diff-tree", "-r", "--no-commit-id", "--diff-filter=M", "--name-only", commit
        ).split()
        if file.endswith(ending)
    ]
    for commit, file in rng.sample(changes, TEXTS):
        old, new = _git("show", f"{commit}~:{file}"), _git("show", f"{commit}:{file}")
        first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
        yield old[:10_000], new[max(0, first - 500) : first + 1_500]


def _records(rng: random.Random) -> Iterator[Text]:
    schema = {"type": "array", "items": {"type": "object", "properties": RECORD}}
    for _ in range(TEXTS):
        records = [
            {
                "id": rng.randint(0, 5000),
                "name": rng.choice(WORDS),
                "address": {"street": rng.choice(WORDS), "city": rng.choice(WORDS)},
                "status": rng.choice(["open", "closed", "pending"]),
                "score": round(rng.random() * 100, 2),
            }
            for _ in range(rng.randint(2, 5))
        ]
        said = " ".join(str(value) for record in records for value in record.values())
        prompt = f"Extract the records as JSON of this schema: {json.dumps(schema)}\nText: {said}"
        yield prompt, json.dumps(records, indent=rng.choice([None, 2]))


def _counted(encode: Callable[[str], list[int]], texts: Sequence[Text], least: int, most: int) -> str:
    steps = made = proposed = right = 0
    for prompt, continuation in texts:
        before = encode(prompt)
        tokens = np.array(before + encode(continuation), dtype=np.int32)
        at = len(before)
        while at < len(tokens):
            drafts: Any = propose(tokens[:at], least, most, 1 << 30, DRAFTS)
            ahead = tokens[at : at + len(drafts)]
            wrong = np.flatnonzero(drafts[: len(ahead)] != ahead)
            good = int(wrong[0]) if len(wrong) else len(ahead)
            steps, proposed, right = steps + 1, proposed + len(drafts), right + good
            made += min(good + 1, len(tokens) - at)
            at += good + 1
    return f"{made / steps:.2f} ({right / max(proposed, 1):.0%} of {proposed / steps:.2f})"


def main() -> None:
    """Print the table."""
    rng = random.Random(1)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(vocabulary.folder()))
    code = [*_edited(".py", rng)]
    kinds = {
        "code edited": code,
        "prose edited": [*_edited(".md", rng)],
        "JSON of a schema": [*_records(rng)],
        "code anew": [("", continued) for _, continued in code],
    }
    print(f"| repetitions of | {' | '.join(kinds)} |")
    for least, most in BOUNDS:
        cells = (
            _counted(lambda text: tokenizer.encode(text, add_special_tokens=False), texts, least, most)
            for texts in kinds.values()
        )
        print(f"| {least} to {most} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

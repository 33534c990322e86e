"""What drafts from a grammar would find: text that a schema leaves no choice of, in documents that exist.

`PYTHONPATH=tools:benchmarks python benchmarks/grammar_drafts.py`, ten minutes of one core. Prints a table:
tokens a step, and how many of so many proposed a step are right. No model, no engine: what a step and a
proposal cost is not in it, so the ratio of two figures is the most that tok/s can win.

A rank would make them while the device computes the step: of the row at which a step ends, the host knows
what was accepted before it, not the token that the step samples there. So what is proposed is what is certain
*from that row on* without its first token, and only if the step samples that one; it begins one step after
the branch that opens it. Where there is none the carrier proposes, which is vLLM's prompt lookup.

- `one bit`: tokens of which the mask allows one alone, then the next. llguidance's `compute_ff_tokens` are
  the same ones, since its masks leave of forced text the tokens alone that the tokenizer makes of it.
- `text`: all bytes that the grammar forces (llguidance's `compute_ff_bytes`), made tokens by the tokenizer;
  the last may go on where the choice begins, and so be wrong.

A rank's grammars take any white space, which it counts beside them: that is `any`.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import llguidance
import llguidance.hf
import llguidance.numpy
import numpy as np
import schemas
import vocabulary
from prompt_lookup import RECORD, WORDS
from transformers import AutoTokenizer
from vllm.v1.spec_decode.ngram_proposer import _find_longest_matched_ngram_and_propose_tokens as lookup

DOCUMENTS: Final = 40  # of each kind
DRAFTS: Final = (3, 7)
LOOKUP: Final = (2, 5)  # as the operator has NGram look for
Matcher = llguidance.LLMatcher
Chain = Callable[[Any, Matcher, int], list[int]]  # of a tokenizer: at most so many tokens from a row on
Way = tuple[Chain, bool]  # and whether the carrier proposes where there is none
Text = tuple[list[int], list[int]]  # what is there, and how it goes on
Document = tuple[dict[str, Any], str, Any]  # its schema, its prompt, and itself


def one_bit(_tokenizer: Any, matcher: Matcher, most: int) -> list[int]:
    """Return the tokens that are each the only one allowed."""
    chain: list[int] = []
    words = llguidance.numpy.allocate_token_bitmask(1, vocabulary.SIZE)
    ahead = matcher.deep_copy()
    while len(chain) < most and not ahead.is_stopped():
        llguidance.numpy.fill_next_token_bitmask(ahead, words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        if len(allowed) != 1 or allowed[0] == vocabulary.EOS:
            break
        chain.append(int(allowed[0]))
        ahead.consume_token(chain[-1])
    return chain


def text_ahead(tokenizer: Any, matcher: Matcher, most: int) -> list[int]:
    """Return the tokens of the bytes that the grammar forces."""
    forced = matcher.compute_ff_bytes().decode(errors="ignore")
    return tokenizer.encode(forced, add_special_tokens=False)[:most]


def nothing(_tokenizer: Any, _matcher: Matcher, _most: int) -> list[int]:
    """Return nothing: the carrier alone."""
    return []


def counted(
    tokenizer: Any, matcher: Matcher, text: Text, way: Way, most: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return steps, tokens made, proposed and right of one document: [4] int64."""
    chain_of, carried = way
    before, after = text
    tokens = np.array(before + after, dtype=np.int32)
    at, steps, proposed, right, drafts = len(before), 0, 0, 0, np.zeros(0, np.int32)
    while at < len(tokens):
        ahead = tokens[at : at + len(drafts)]
        wrong = np.flatnonzero(drafts[: len(ahead)] != ahead)
        good = int(wrong[0]) if len(wrong) else len(ahead)
        steps, proposed, right = steps + 1, proposed + len(drafts), right + good
        matcher.consume_tokens(tokens[at : at + good].tolist())
        at += good
        if at == len(tokens):  # this step samples the end
            break
        chain = chain_of(tokenizer, matcher, most + 1)
        matcher.consume_token(int(tokens[at]))
        certain = chain[1:] if chain and chain[0] == tokens[at] else []
        at += 1
        found: Any = lookup(tokens[:at], *LOOKUP, 1 << 30, most) if carried and not certain else ()
        drafts = np.array(certain or found, dtype=np.int32)
    assert not matcher.get_error(), matcher.get_error()
    return np.array([steps, len(after), proposed, right])


def series(*, shown: bool) -> Iterator[Document]:
    """Yield schemas of closed objects, and documents that are mostly strings of some words."""
    for number in range(DOCUMENTS):
        schema = schemas.schema(number)
        yield schema, _prompt(schema, shown=shown), json.loads(schemas.document(schema, f"{number}"))


def calls(*, shown: bool) -> Iterator[Document]:
    """Yield a record's schema, and records of short values, as tools are called."""
    rng = random.Random(1)
    properties = {
        **RECORD,
        "due_date": {"type": "string", "format": "date"},
        "is_urgent": {"type": "boolean"},
    }
    schema = {"type": "array", "items": closed(properties), "minItems": 1}
    for _ in range(DOCUMENTS):
        records = [
            {
                "id": rng.randint(0, 5000),
                "name": rng.choice(WORDS),
                "address": {"street": rng.choice(WORDS), "city": rng.choice(WORDS)},
                "status": rng.choice(["open", "closed", "pending"]),
                "score": round(rng.random() * 100, 2),
                "due_date": f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
                "is_urgent": rng.random() < 0.5,
            }
            for _ in range(rng.randint(1, 3))
        ]
        yield schema, _prompt(schema, shown=shown), records


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these properties, in this order, and no others."""
    deep = {
        name: closed(value["properties"]) if "properties" in value else value
        for name, value in properties.items()
    }
    return {"type": "object", "properties": deep, "required": list(deep), "additionalProperties": False}


def _prompt(schema: dict[str, Any], *, shown: bool) -> str:
    return f"Answer as JSON of this schema: {json.dumps(schema)}\n" if shown else "Answer as JSON.\n"


def row(tokenizer: Any, seen: Any, of: Any, case: tuple[bool, int, str]) -> str:
    """Return a row of the table, of whether the schema is shown, the most drafts, and the white space."""
    shown, most, style = case
    separators, overrides = STYLES[style]
    encode = lambda said: tokenizer.encode(said, add_special_tokens=False)  # noqa: E731 - a short name
    totals = {name: np.zeros(4, np.int64) for name in WAYS}
    for schema, prompt, document in of(shown=shown):
        grammar = Matcher.grammar_from_json_schema(schema, overrides=overrides)
        text = encode(prompt), encode(json.dumps(document, separators=separators))
        for name, way in WAYS.items():
            totals[name] += counted(tokenizer, Matcher(seen, grammar), text, way, most)
    cells = (
        f"{made / steps:.2f} ({right / max(proposed, 1):.0%} of {proposed / steps:.2f})"
        for steps, made, proposed, right in totals.values()
    )
    return f"| {of.__name__}, {'yes' if shown else 'no'}, {most}, {style} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    tokenizer: Any = AutoTokenizer.from_pretrained(str(vocabulary.folder()))
    seen = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary.SIZE)
    print(f"| documents, schema in the prompt, drafts, white space | {' | '.join(WAYS)} |")
    for of, shown, most in itertools.product((series, calls), (True, False), DRAFTS):
        for style in STYLES if (shown, most) == (True, 3) else ("strict",):
            print(row(tokenizer, seen, of, (shown, most, style)), flush=True)


# How a document is written, and what the grammar takes: as it is written alone, or any white space.
STYLES: Final[dict[str, tuple[tuple[str, str], dict[str, Any]]]] = {
    "strict": ((",", ":"), {"whitespace_flexible": False}),
    "any, none written": ((",", ":"), {"whitespace_flexible": True}),
    "any, some written": ((", ", ": "), {"whitespace_flexible": True}),
    "strict, some written": (
        (", ", ": "),
        {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    ),
}
WAYS: Final[dict[str, Way]] = {
    "lookup": (nothing, True),
    "one bit": (one_bit, False),
    "one bit, else lookup": (one_bit, True),
    "text": (text_ahead, False),
    "text, else lookup": (text_ahead, True),
}

if __name__ == "__main__":
    main()

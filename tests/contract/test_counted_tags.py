"""Lengths of strings in a structural tag, which ranks count, judged by llguidance's own compiled bounds."""

import functools
import itertools
import json
import random
import re
from typing import Any, ClassVar, Final

import jsonschema
import llguidance
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guided_engine.ranks.length_masks import CountedGrammar
from guided_engine.ranks.token_lengths import TokenTable
from guided_grammar.backend import BackendError, Threads
from guided_grammar.bounds import Bounds
from guided_grammar.counted_text import CountedText
from guided_grammar.llguidance.backend import GuidanceBackend
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import tagged
from support.rank import EOS, VOCAB, ByteVocabulary

END: Final = 256  # of the vocabulary that runs across borders

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
DRAWN: Final = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def _value(**bounds: int) -> dict[str, Any]:
    return {"type": "string", **bounds}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


SHORT, LONG = _value(maxLength=1), _value(minLength=2, maxLength=3)
SCHEMAS: Final[list[Any]] = [
    SHORT,
    _object(a=SHORT),
    _object(a=LONG, b={"type": "integer"}),
    {"type": "array", "items": LONG, "maxItems": 2},
    {"type": "integer"},
    {"type": "null"},
]
TEXTS: Final = st.text('a<"{}', min_size=1, max_size=3)


def _json(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def _tag(begin: str, schema: Any, end: str) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": _json(schema), "end": end}


TAGS: Final = st.lists(st.builds(_tag, TEXTS, st.sampled_from(SCHEMAS), TEXTS), min_size=1, max_size=3)


def _triggered(tags: list[Any], length: int) -> dict[str, Any]:
    triggers = sorted({tag["begin"][:length] for tag in tags})
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _separated(tags: list[Any], separator: str) -> dict[str, Any]:
    return {"type": "tags_with_separator", "tags": tags, "separator": separator}


LISTS: Final = st.builds(_triggered, TAGS, st.integers(1, 3)) | st.builds(_separated, TAGS, TEXTS)


def _sequence(before: str, part: Any, behind: str) -> dict[str, Any]:
    around = [{"type": "const_string", "value": text} for text in (before, behind)]
    return {"type": "sequence", "elements": [around[0], part, around[1]]}


def _repeated(kind: str, part: Any) -> dict[str, Any]:
    return {"type": kind, "content": part}


def _either(*parts: Any) -> dict[str, Any]:
    return {"type": "or", "elements": [*parts]}


FORMATS: Final = (
    LISTS
    | st.builds(_sequence, TEXTS, LISTS, TEXTS)
    | st.builds(_repeated, st.sampled_from(["plus", "star", "optional"]), LISTS)
    | st.builds(_either, LISTS, LISTS)
)


@functools.cache
def library() -> Any:
    return Backends(ByteVocabulary())["guidance"]


def _allowed(matcher: Matcher) -> set[int]:
    mask: Any = np.full((1, mask_words(VOCAB)), -1, dtype=np.int32)
    matcher.fill(mask, 0)
    bits = np.unpackbits(mask[0].view(np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits[:VOCAB])}


def _counting(relaxed: Any, positions: Any) -> Matcher:
    matcher = library().compile("structural_tag", json.dumps(relaxed)).matcher()
    matcher.counted = CountedText(CountedGrammar(positions, TokenTable(library().tokens(), VOCAB)))
    return matcher


@DRAWN
@given(FORMATS, st.randoms(use_true_random=False))
def test_where_a_value_begins_is_told_by_the_text_alone(form: Any, chance: Any) -> None:
    """Of drawn texts around values, that contain one another or run into one another, or do not."""
    tag = {"type": "structural_tag", "format": form}
    relaxed, positions = tagged.split(tag, "guidance")
    if not positions:
        return
    try:
        theirs = library().compile("structural_tag", json.dumps(tag)).matcher()
    except BackendError:  # it is not told which of two texts is meant
        return
    ours, text = _counting(relaxed, positions), b""
    for _ in range(60):
        allowed = _allowed(ours)
        assert allowed == _allowed(theirs), text
        # What the tags are made of, so that most texts have some.
        plain = sorted(token for token in allowed if token < 256 or token == EOS)  # not special ones
        token = chance.choice([*plain, *sorted(allowed & {*b'a<"{}[]:,'}) * 40])
        assert ours.accept([token])
        assert theirs.accept([token])
        if token == EOS:
            break
        text += bytes([token])


TOOLS: Final = {
    "hermes": "auto",
    "llama": "required",
    "qwen_3": "auto",
    "longcat": "required",
    "deepseek_v3_1": "required",
}
PARAMETERS: Final = _object(
    q=_value(maxLength=4),
    n={"type": "integer"},
    t={"type": "array", "items": _value(minLength=2, maxLength=3)},
)


def _of_tools(model: str) -> dict[str, Any]:
    """Return the tag that vLLM makes of two strict tools, with the words of a model's chat template."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
    from vllm.tool_parsers.structural_tag_registry import get_model_structural_tag

    tools = [
        ChatCompletionToolsParam.model_validate(
            {"type": "function", "function": {"name": name, "strict": True, "parameters": PARAMETERS}}
        )
        for name in ("get", "get_all")
    ]
    tag = get_model_structural_tag(model, tools, TOOLS[model], reasoning=False)
    assert tag is not None
    found: dict[str, Any] = json.loads(tag.model_dump_json())
    return found


WRITTEN: Final = [
    '{"q": "a\\"b", "n": 1, "t": ["ab", "abc"]}',
    '{"q": "", "n": -1, "t": []}',
    '{"q": "é🙂\\n/", "n": 5, "t": ["ééé"]}',
]


@functools.cache
def _tools(model: str) -> tuple[Any, list[bytes], Any]:
    """Return a model's tag, tokens that run across all of its borders, and their library."""
    tag = _of_tools(model)
    chance = random.Random(model)
    tags = _tags(tag["format"])
    text = "".join(
        f"{one['begin']}{value}{one['end']}"
        for _ in range(4)
        for value in WRITTEN
        for one in chance.sample(tags, 2)
    ).encode()
    pieces = {
        text[at : at + chance.randrange(2, 70)] for at in chance.sample(range(len(text)), min(len(text), 600))
    }
    for one, value in itertools.product(tags, WRITTEN):  # from before a value into its strings
        for start in (0, chance.randrange(len(one["begin"])), len(one["begin"]) - 2):
            pieces.add(f"{one['begin'][start:]}{value[: chance.randrange(7, 13)]}".encode())
    tokens = [*(bytes([byte]) for byte in range(256)), b"<|end|>", *sorted(pieces)]
    native = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Pieces(tokens)))
    return tag, tokens, GuidanceBackend(native, Threads(compile=1))


class _Pieces:
    """A tokenizer of given tokens, as llguidance.TokenizerWrapper reads one."""

    eos_token_id = END
    bos_token_id = None
    special_token_ids: ClassVar = [END]

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def __call__(self, text: str | bytes) -> list[int]:
        return [*(text.encode() if isinstance(text, str) else text)]


def _tags(form: Any) -> list[Any]:
    return (
        [form]
        if "begin" in form and form["content"]["type"] == "json_schema"
        else [tag for inner in (form.get("tags") or [form["content"]]) for tag in _tags(inner)]
    )


@pytest.mark.parametrize("model", TOOLS)
@settings(DRAWN, max_examples=10)
@given(chance=st.randoms(use_true_random=False))
def test_a_mask_of_tool_calls_has_what_may_follow(model: str, chance: Any) -> None:
    """Every token that the grammar allows is followed byte by byte: it stays if it keeps the bounds."""
    tag, tokens, library = _tools(model)
    relaxed, positions = tagged.split(tag, "guidance")
    matcher = library.compile("structural_tag", json.dumps(relaxed)).matcher()
    counted = CountedText(CountedGrammar(positions, TokenTable(tokens, len(tokens))))
    row: Any = np.empty((1, mask_words(len(tokens))), dtype=np.int32)
    bounds = Bounds(positions)
    where, text = bounds.start, b""
    for _ in range(80):
        row.fill(-1)
        matcher.fill(row, 0)
        plain = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[: len(tokens)])
        counted.restrict(row, ())
        kept = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[: len(tokens)])
        expected = [t for t in plain if t == END or bounds.advance(where, tokens[t]) is not None]
        assert kept.tolist() == expected, text
        # Long ones, that run across borders, as often as all others.
        token = int(
            chance.choice([*expected, *[t for t in expected if t > END] * 20, *[END] * (END in expected) * 9])
        )
        assert matcher.accept([token])
        if token == END:
            break
        assert counted.accept([token])
        after = bounds.advance(where, tokens[token])
        assert after is not None
        where, text = after, text + tokens[token]
    _judge(tag, text)


def _judge(tag: Any, text: bytes) -> None:
    """Judge each value that is whole in a text."""
    validator = jsonschema.Draft202012Validator(PARAMETERS)
    begins = "|".join(re.escape(one["begin"]) for one in _tags(tag["format"]))
    written, at = text.decode(errors="replace"), 0
    while found := re.compile(begins).search(written, at):
        begin = len(written) - len(written[found.end() :].lstrip())
        try:
            value, at = json.JSONDecoder().raw_decode(written, begin)
        except json.JSONDecodeError:  # it is not whole; or it is no JSON, which a tolerant reader takes
            with pytest.raises(json.JSONDecodeError):
                json.JSONDecoder(strict=False).raw_decode(written, begin)
            return
        assert validator.is_valid(value), written


FREE: Final = {"type": "triggered_tags", "triggers": ["}{"], "tags": [_tag("}{", SHORT, "!")]}
BRACE: Final = {"type": "const_string", "value": "{"}


@pytest.mark.parametrize(
    ("form", "is_counted"),
    [
        (FREE, True),
        (_sequence("x", {"type": "optional", "content": FREE}, ""), True),
        ({"type": "sequence", "elements": [BRACE, {"type": "optional", "content": FREE}]}, True),
        ({"type": "sequence", "elements": [FREE, BRACE]}, False),
        (_repeated("star", FREE), False),
        (_either(FREE, BRACE), False),
        (_either(FREE, {**FREE, "triggers": ["}"]}), False),
        ({"type": "tag", "begin": "<", "content": FREE, "end": "{"}, False),
        ({"type": "tag", "begin": "<", "content": _json(SHORT), "end": ["!", "<"]}, False),
    ],
    ids=json.dumps,
)
def test_free_text_and_what_follows_it_begin_no_value_together(form: Any, is_counted: bool) -> None:  # noqa: FBT001 - a table's
    """`}` of free text and `{` behind it are no trigger to a library, and would be a value's begin to us."""
    tag = {"type": "structural_tag", "format": form}
    _, positions = tagged.split(tag, "guidance")
    try:
        library().compile("structural_tag", json.dumps(tag))
    except BackendError:
        positions = []
    assert bool(positions) == is_counted

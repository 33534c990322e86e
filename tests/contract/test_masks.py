"""Rules that ranks keep beside a grammar: a mask is the grammar's own, less the tokens that break the rule.

The judges know nothing of how masks are made: jsonschema judges lengths, Python's own reading of a text its
white space; llguidance's own compiled bounds judge whole masks of lengths.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pytest

from guided_contract.backends import NAMES
from guided_contract.choices import BOUND, MOST
from guided_contract.wire import Load
from guided_engine.matchers.bitmasks import MaskFiller
from guided_grammar.backend import BackendError
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from guided_sidecar.grammar.compile import followed, tagged
from support.worker_and_rank import EOS, WorkerAndRank

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
LIBRARIES = tuple(NAMES.values())
BLANKS = f"free{' ' * 2 * BOUND} text"
UNPROVEN: dict[str, Any] = {"is_proven": False}  # a proof would measure how busy the machine is


def obj(**properties: Any) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Case(NamedTuple):
    """A schema, or a tag around it, and texts: %s is a drawn string, ~ a run of white space."""

    schema: Any
    texts: tuple[str, ...]
    is_tag: bool = False


SHORT, EMPTY = {"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 0}
MIDDLE, LEAST = {"type": "string", "minLength": 2, "maxLength": 4}, {"type": "string", "minLength": 2}
LENGTHS: dict[str, Case] = {
    "the whole text": Case(MIDDLE, ('"%s"',)),
    "two properties": Case(obj(a=SHORT, b=LEAST), ('{"a":"%s","b":"%s"}', '{ "a" : "%s" , "b" : "%s" }')),
    "items": Case({"type": "array", "items": MIDDLE}, ('["%s","%s", "%s"]', "[]")),
    "null or a string": Case(obj(a={"anyOf": [{"type": "null"}, SHORT]}, b=EMPTY), ('{"a":"%s","b":""}',)),
    "first items": Case(
        {"type": "array", "prefixItems": [MIDDLE, {"type": "integer"}], "items": MIDDLE}, ('["%s",1,"%s"]',)
    ),
    "other properties": Case({"type": "object", "additionalProperties": MIDDLE}, ('{"b%s":"%s"}',)),
    "recursion": Case(
        {"$defs": {"N": obj(t=SHORT, n={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/N"}]})}}
        | {"$ref": "#/$defs/N"},
        ('{"t":"%s","n":{"t":"%s","n":null}}',),
    ),
    "beside a pattern": Case(obj(a=MIDDLE, b={**SHORT, "pattern": "^x"}), ('{"a":"%s","b":"x%s"}',)),
}
OPEN = {"type": "object", "additionalProperties": {"type": "string"}}
SPACED: dict[str, Case] = {
    "properties": Case(
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["number", "null"]}}},
        ('{~"a"~:~"%s  \\" \\\\ "~,~"b"~:~-1.5e3~}',),
    ),
    "anything": Case({"type": "object", "properties": {"a": {}}}, ('{~"a"~:~{~"b"~:~[~1~,~"x"~,~{~}~]~}~}',)),
    "items": Case(
        {"type": "array", "items": {"type": "array", "items": {"enum": [1, "a b", None]}}},
        ('[~[~1~]~,~[~]~,~["a b"]~]',),
    ),
    "bounded strings": Case({"type": "object", "properties": {"a": SHORT}}, ('{~"a"~:~" é"~}',)),
    "alternatives": Case(
        {"anyOf": [{"type": "array", "items": {"type": "string"}}, OPEN]}, ('{~"%s"~:~""~}',)
    ),
    "itself": Case(
        {"type": "object", "properties": {"t": {"type": "array", "items": {"$ref": "#"}}}},
        ('{~"t"~:~[~{~"t"~:~[~]~}~,~{~}~]~}',),
    ),
    "in a tag": Case(
        obj(a={}), (f'free{BLANKS} <a>{{~"a"~:~[~1~,~{{~}}~]~}}</a>{BLANKS} text',), is_tag=True
    ),
}
PIECES = ("a", "b", "é", "漢", "🙂", "\\n", '\\"', "\\\\", "\\u001f", "\\u007F", " ")
PIECES += ("\\ud83d", "\\ud83d\\ude00", "\\uDBFF", "\\uDC00", "\\uE000")


def drawn(text: str, chance: random.Random, most: int = 0) -> str:
    """Return a text with drawn strings, and runs of white space about as long as `most`."""
    blanks = " " if "<a>" in text else " \t\n\r"  # llguidance takes no other in tags
    text = re.sub("%s", lambda _: "".join(chance.choices(PIECES, k=chance.randrange(6))), text)
    runs = (0, most) if chance.random() < 0.5 else (0, most, most + 1)
    return re.sub("~", lambda _: "".join(chance.choices(blanks, k=chance.choice(runs))), text)


def rows(served: WorkerAndRank, matcher: Matcher, drafts: Sequence[int] = ()) -> Any:
    """Return the masks for the next token and after each draft."""
    walk = GuidedRows(matcher, 0, 1 + len(drafts), drafts)
    vocab_size = served.words.vocab_size
    filled = np.zeros((walk.end, mask_words(vocab_size)), np.int32)
    MaskFiller(3, vocab_size, served.backends).fill([walk], filled)
    bits = np.unpackbits(filled.view(np.uint8), axis=1, bitorder="little")
    return bits[:, : len(served.tokens)].astype(bool)


def spelled(served: WorkerAndRank, text: str, chance: random.Random) -> Iterator[int]:
    """Yield some of the tokens that make a text: of many ways to write it, one."""
    known = {token: number for number, token in enumerate(served.tokens)}
    rest = text.encode()
    while rest:
        part = chance.choice([rest[:end] for end in range(1, 40) if rest[:end] in known])
        yield known[part]
        rest = rest[len(part) :]


def follow(
    served: WorkerAndRank, pair: tuple[Matcher, Matcher], tokens: Any, case: Case, *, is_one: bool
) -> bool:
    """Return whether tokens are taken to an end by the first matcher; the second has no rule.

    In a tag the mask alone knows white space. With `is_one` grammar both masks differ by the rule alone:
    else, where one text alone can follow, llguidance's mask has one way to write it in tokens.
    """
    kept, free = pair
    for token in tokens:
        mask, own = rows(served, kept)[0], rows(served, free)[0]
        assert mask.any()
        is_taken = bool(mask[EOS]) if token == EOS else kept.valid_prefix([token]) == 1
        if case.is_tag:
            is_taken &= bool(mask[token] or not own[token])
        assert is_taken or not mask[token]
        if is_one:
            assert not (mask & ~own).any()
            lost = {*np.flatnonzero(own & ~mask).tolist()[::50]} - {EOS}
            assert not any(kept.valid_prefix([one]) for one in lost)
        if not is_taken:
            return False
        assert kept.accept([token])
        assert free.accept([token])
    return True


def judge(
    served: WorkerAndRank,
    case: Case,
    make: Sequence[Callable[[], Matcher]],
    is_kept: Callable[[str], bool],
    most: int | None = None,
) -> None:
    """Assert that of the texts that a grammar takes those are taken that keep the rule.

    `make` makes a matcher with the rule, and one without it.
    """
    chance = random.Random(str(case.texts))
    seen = set()
    for text in (drawn(one, chance, most or 0) for one in case.texts * 24):
        is_right = served.takes(make[1](), text) and is_kept(text)
        tokens = [*spelled(served, text, chance), EOS]
        pair = [one() for one in make]
        assert follow(served, pair, tokens, case, is_one=most is None) == is_right, text
        seen.add(is_right)
    assert seen == {True, False}


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("name", LENGTHS)
def test_a_string_is_as_long_as_its_bounds_say(served: WorkerAndRank, name: str, backend: Any) -> None:
    case = LENGTHS[name]
    if name == "beside a pattern" and backend == "xgrammar":
        pytest.skip("it enforces no length beside a pattern")
    make = served.matchers("json", case.schema, backend, **UNPROVEN)
    assert make().counted is not None
    valid = jsonschema.Draft202012Validator(case.schema).is_valid

    def free() -> Matcher:
        made = make()
        made.counted = None
        return made

    judge(served, case, (make, free), lambda text: valid(json.loads(text)))


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("name", SPACED)
@pytest.mark.parametrize("whitespace", ["Compact", "Flexible"])
def test_white_space_is_as_long_as_both_libraries_are_told(
    served: WorkerAndRank, whitespace: Any, name: str, backend: Any
) -> None:
    """In structural tags Compact is as Flexible, and llguidance has blanks alone. Free text there stays."""
    case = SPACED[name]
    tag = {"structures": [{"begin": "<a>", "schema": case.schema, "end": "</a>"}], "triggers": ["<a"]}
    kind: Any = "structural_tag" if case.is_tag else "json"
    most = BOUND if case.is_tag else MOST[whitespace]
    make = [
        served.matchers(kind, tag if case.is_tag else case.schema, backend, whitespace=one, **UNPROVEN)
        for one in (MOST[whitespace], MOST["Unbounded"])
    ]

    def is_short(text: str) -> bool:
        if case.is_tag:
            text = text.partition("<a>")[2].partition("</a>")[0]
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
        return all(len(run) <= most for run in re.findall(r"[ \t\n\r]+", outside))

    judge(served, case, make, is_short, most)


# --- llguidance compiles bounds itself, if it is told to: its whole masks judge those of counting.
def twins(served: WorkerAndRank, kind: Any, whole: Any, relaxed: Any, positions: Any) -> Iterator[Matcher]:
    """Yield a matcher that counts beside a grammar, and one whose grammar has the bounds."""
    for key, spec, wheres in (("ours", relaxed, positions), ("theirs", whole, [])):
        source = served.backends["guidance"].compile(kind, json.dumps(spec)).source()
        load = Load(key=key, backend="guidance", spec=source, positions=wheres)
        assert not served.ranks.load(load).error
        yield served.ranks.matcher(key, [EOS])


def compare(served: WorkerAndRank, pair: Iterator[Matcher], text: str, chance: random.Random) -> None:
    """Follow a text as far as it is taken; masks must be equal, after drafts as well."""
    ours, theirs = pair
    for token in spelled(served, text, chance):
        drafts = [token, chance.randrange(2, len(served.tokens))]
        assert (rows(served, ours, drafts) == rows(served, theirs, drafts)).all(), text
        assert ours.valid_prefix(drafts) == theirs.valid_prefix(drafts)
        if not ours.accept([token]):
            break
        assert theirs.accept([token])


@pytest.mark.parametrize("name", LENGTHS)
def test_masks_and_drafts_are_those_of_the_bounds_that_llguidance_compiles(
    served: WorkerAndRank, name: str
) -> None:
    schema, texts, _ = LENGTHS[name]
    chance = random.Random(name)
    relaxed, positions = followed.split(json.loads(json.dumps(schema)), "guidance")
    assert positions
    for text in texts * 12:
        pair = twins(served, "json", schema, relaxed, positions)
        compare(served, pair, drawn(text, chance), chance)


ONE = {"type": "string", "maxLength": 1}


def tag_of(begin: str, schema: Any, end: Any) -> dict[str, Any]:
    value = {"type": "json_schema", "json_schema": schema}
    return {"type": "tag", "begin": begin, "content": value, "end": end}


FREE: dict[str, Any] = {"type": "triggered_tags", "triggers": ["}{"], "tags": [tag_of("}{", ONE, "!")]}
BRACE = {"type": "const_string", "value": "{"}


@pytest.mark.parametrize(
    ("form", "is_counted"),
    [
        (FREE, True),
        ({"type": "tags_with_separator", "tags": [tag_of("<", obj(a=ONE), ">")], "separator": '"'}, True),
        ({"type": "sequence", "elements": [BRACE, {"type": "optional", "content": FREE}]}, True),
        ({"type": "sequence", "elements": [FREE, BRACE]}, False),
        ({"type": "star", "content": FREE}, False),
        ({"type": "or", "elements": [FREE, BRACE]}, False),
        ({"type": "tag", "begin": "<", "content": FREE, "end": "{"}, False),
        (tag_of("<", ONE, ["!", "<"]), False),
    ],
    ids=json.dumps,
)
def test_free_text_and_what_follows_it_begin_no_value_together(form: Any, is_counted: bool) -> None:  # noqa: FBT001 - a table's
    """`}` of free text and `{` behind it are no trigger to a library, and would be a value's begin to us."""
    served, chance = WorkerAndRank.of("awkward"), random.Random(0)
    tag = {"type": "structural_tag", "format": form}
    relaxed, positions = tagged.split(tag, "guidance")
    try:
        served.backends["guidance"].compile("structural_tag", json.dumps(tag))
    except BackendError:  # it is not told which of two texts is meant
        positions = []
    assert bool(positions) == is_counted
    for _ in range(40 if is_counted else 0):
        pair = twins(served, "structural_tag", tag, relaxed, positions)
        compare(served, pair, "".join(chance.choices('a<"{}!', k=20)), chance)

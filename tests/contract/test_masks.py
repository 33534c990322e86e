"""Rules that ranks keep beside a grammar: a mask is the grammar's own, less the tokens that break the rule.

The judges know nothing of how masks are made. jsonschema judges lengths and sets by what is over in a text,
Python's own reading of a text its white space; llguidance's own compiled bounds judge whole masks of lengths.
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
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_grammar.backend import BackendError
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.matching import Matcher
from guided_sidecar.grammar.compile import followed, tagged
from support.worker_and_rank import EOS, WorkerAndRank

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own imports warn
LIBRARIES = tuple(NAMES.values())
UNPROVEN: dict[str, Any] = {"is_proven": False}  # a proof would measure how busy the machine is


def obj(**properties: Any) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# --- What is judged: a schema, or a tag around it, and texts that a walk begins with as far as it may.
class Case(NamedTuple):
    """A grammar, and texts whose %s are drawn strings."""

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
    "other properties": Case({"type": "object", "additionalProperties": MIDDLE}, ('{"a":"%s","%s":"%s"}',)),
    "recursion": Case(
        {"$defs": {"N": obj(t=SHORT, n={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/N"}]})}}
        | {"$ref": "#/$defs/N"},
        ('{"t":"%s","n":{"t":"%s","n":{"t":"%s"',),
    ),
    "beside a pattern": Case(obj(a=MIDDLE, b={**SHORT, "pattern": "^x"}), ('{"a":"%s","b":"x%s"}',)),
}
OPEN = {"type": "object", "additionalProperties": {"type": "string"}}
SPACED: dict[str, Case] = {
    "properties": Case(
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["number", "null"]}}},
        ('{ "a" : "%s  \\" \\\\ " , "b" : -1.5e3 }',),
    ),
    "anything": Case({"type": "object", "properties": {"a": {}}}, ('{ "a" : { "b" : [ 1 , "x" , { } ] } }',)),
    "items": Case(
        {"type": "array", "items": {"type": "array", "items": {"enum": [1, "a b", None]}}},
        ('[ [ 1 ] , [ ] , [ "a b" ] ]',),
    ),
    "first items": Case(
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
        ('[ "" , true ]',),
    ),
    "bounded strings": Case({"type": "object", "properties": {"a": SHORT}}, ('{ "a" : " é" }',)),
    "alternatives": Case(
        {"anyOf": [{"type": "array", "items": {"type": "string"}}, OPEN]}, ('{ "%s" : "" }',)
    ),
    "itself": Case(
        {"type": "object", "properties": {"t": {"type": "array", "items": {"$ref": "#"}}}},
        ('{ "t" : [ { "t" : [ ] } , { } ] }',),
    ),
    "in a tag": Case(obj(a={}), ('free{BLANKS} <a>{ "a" : [ 1 , { } ] }</a>{BLANKS} text',), is_tag=True),
}


# --- The judges: whether a text that may go on breaks the rule by now.
Breaks = Callable[[bytes], bool]
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[]["{}]', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?$")


def closing(text: bytes) -> tuple[bytes, int | None]:
    """Return what closes all brackets that are open in a text, and where a string begins in which it ends."""
    brackets: list[bytes] = []
    for part in _STRUCTURE.finditer(text):
        if part[0] == b'"':
            return b"".join(brackets), part.start()
        if part[0] in {b"[", b"{"}:
            brackets.insert(0, b"]" if part[0] == b"[" else b"}")
        elif part[0] in {b"]", b"}"}:
            brackets.pop(0)
    return b"".join(brackets), None


def read(text: bytes) -> Any:
    return json.loads(text.decode(errors="replace"), strict=False)


def over(text: bytes) -> Any:
    """Return the value of what is over in a text: what is not is left out."""
    text = text[: closing(text)[1]]
    text = re.sub(rb"[-+.0-9eE]+$", b"", text)  # a number may go on
    for end in range(len(text), -1, -1):
        ends, begin = closing(text[:end])
        for missing in (b"", b":null", b"null") if begin is None else ():
            try:
                return read(text[:end] + missing + ends)
            except ValueError:
                continue
    return None


def begun(text: bytes) -> Any:
    """Return the value with the string in which a text ends, as short as that can be."""
    escape = _ESCAPE.search(text)
    is_escape = escape and (len(text[: escape.start()]) - len(text[: escape.start()].rstrip(b"\\"))) % 2 == 0
    whole = text + (b"\\udc00"[len(escape[0]) :] if escape and is_escape else b"") + b'"'
    for missing in (b"", b":null"):
        try:
            return read(whole + missing + closing(text)[0])
        except ValueError:
            continue
    return None


def keywords(errors: Iterator[Any]) -> set[str]:
    """Return the keywords that are not met, in branches as well."""
    found: set[str] = set()
    for error in errors:
        found |= keywords(iter(error.context)) if error.context else {error.validator}
    return found


def by_jsonschema(case: Case) -> Breaks:
    judge = jsonschema.Draft202012Validator(case.schema)

    def breaks(text: bytes) -> bool:
        if not keywords(judge.iter_errors(over(text))).isdisjoint({"minLength", "maxLength"}):
            return True
        return closing(text)[1] is not None and "maxLength" in keywords(judge.iter_errors(begun(text)))

    return breaks


def by_length_of_runs(case: Case, most: int | None) -> Breaks:
    """Return whether white space outside of strings is longer; of a tag, where its value is."""

    def breaks(text: bytes) -> bool:
        if case.is_tag:
            _, is_begun, text = text.rpartition(b"<a>")
            text = text.partition(b"</a>")[0] if is_begun else b""
        outside = re.sub(rb'"(?:[^"\\]|\\.)*("|$)', b'""', text)
        return most is not None and max(map(len, re.findall(rb"[ \t\n\r]+", outside)), default=0) > most

    return breaks


# --- The walks.
class Walk:
    """A text that grows by tokens of a mask: those of some text first, as far as they may, then others."""

    def __init__(
        self,
        served: WorkerAndRank,
        matchers: list[Matcher],
        begin: str,
        chance: random.Random,
        weights: Any = None,
    ) -> None:
        self.served = served
        self.matchers = matchers
        self.chance = chance
        self.text = b""
        self.drawn = 0  # tokens after those
        self._rest = begin.encode()
        self._weights = likes(served.tokens, chance) if weights is None else weights

    def goes_on(self, row: Any, *, hurries: bool) -> bool:
        """Take another token; return whether the text is over."""
        tokens = self.served.tokens
        choices = np.flatnonzero(row).tolist()
        fitting = [token for token in choices if tokens[token] and self._rest.startswith(tokens[token])]
        if fitting:
            token = self.chance.choice(fitting)
            self._rest = self._rest[len(tokens[token]) :]
        else:
            self._rest = b""
            self.drawn += 1
            ends = [one for one in choices if one == EOS or tokens[one][:1] in b'"]}'] if hurries else []
            among = ends or choices
            token = self.chance.choices(among, self._weights[among])[0]
        for matcher in self.matchers:
            assert matcher.accept([token]), (self.text, tokens[token])
        self.text += tokens[token]
        return token != EOS


def likes(tokens: list[bytes], chance: random.Random) -> Any:
    """Return how likely a walk takes each token: few letters, digits and blanks, so that they come again."""
    rare = chance.choice((1e-5, 1e-3))
    found = []
    for text in tokens:
        is_odd = text[:1] == b"\\" or b'"' in text[1:] or text[:1] in b"}],{[tfn-"
        is_short = len(text) == 1 and text in b'ab01" \n'
        found.append(9.0 if text in {b'"', b","} else 3.0 if is_short else is_odd / 3 or rare)
    return np.array(found)


PIECES = ("a", "b", "é", "漢", "🙂", "\\n", '\\"', "\\\\", "\\u001f", "\\u007F", " ")
PIECES += ("\\ud83d", "\\ud83d\\ude00", "\\uDBFF", "\\uDC00", "\\uE000")


def begins(text: str, chance: random.Random, most: int = 0) -> str:
    """Return a text with drawn strings for %s and, where it is of white space, runs of it for blanks."""
    text = re.sub("%s", lambda _: "".join(chance.choices(PIECES, k=chance.randrange(6))), text)
    for _ in range(text.count(" ") if most else 0):
        length = max(0, chance.choice((0, 0, 1, most - 1, most)))
        text = text.replace(" ", "".join(chance.choices("\t\n\r", k=length)), 1)
    text = re.sub(r"[\t\n\r]", " ", text) if "<a>" in text else text  # llguidance takes no other in tags
    return text.replace("{BLANKS}", " " * 2 * BOUND)


def rows(served: WorkerAndRank, matcher: Matcher, drafts: Sequence[int] = ()) -> Any:
    """Return the masks for the next token and after each draft."""
    walk = GuidedRows(matcher, 0, 1 + len(drafts), drafts)
    filled, _ = BitmaskBuffer(3, served.words.vocab_size, served.backends).fill([walk], walk.end)
    bits = np.unpackbits(np.ascontiguousarray(filled).view(np.uint8), axis=1, bitorder="little")
    return bits[:, : len(served.tokens)].astype(bool)


def judge_walks(  # noqa: PLR0913 - what a rule is
    served: WorkerAndRank,
    case: Case,
    made: Callable[[], tuple[Matcher, Matcher]],
    breaks: Breaks,
    chance: random.Random,
    *,
    most: int = 0,
) -> None:
    """Compare masks with a rule with those without it, along texts that nearly break the rule."""
    whole = jsonschema.Draft202012Validator(case.schema)
    refused = 0
    for begin in case.texts * (6 if most else 2):
        kept, free = made()
        walk = Walk(served, [kept, free], begins(begin, chance, most), chance)
        while walk.drawn < 32:
            mask, own = rows(served, kept)[0], rows(served, free)[0]
            assert mask.any(), walk.text
            if mask[EOS]:
                assert case.is_tag or whole.is_valid(read(walk.text)), walk.text
            for some in (np.flatnonzero(own & ~mask).tolist(), np.flatnonzero(mask).tolist()):
                for token in set(chance.sample(some, min(3, len(some)))) - {EOS}:
                    text = walk.text + served.tokens[token]
                    is_broken = breaks(text)
                    if not case.is_tag:  # there the mask alone knows white space
                        assert (kept.valid_prefix([token]) == 0) == is_broken, text
                    assert not is_broken or not mask[token], text
                    # Where one text alone can follow, llguidance's mask has one way to write it in tokens.
                    assert is_broken or mask[token] or most, text
                    refused += is_broken
            if not walk.goes_on(mask, hurries=walk.drawn > 16):
                break
    assert refused, "nothing broke the rule"


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("name", LENGTHS)
def test_a_string_is_as_long_as_its_bounds_say(served: WorkerAndRank, name: str, backend: Any) -> None:
    case = LENGTHS[name]
    if name == "beside a pattern" and backend == "xgrammar":
        pytest.skip("it enforces no length beside a pattern")
    make = served.matchers("json", case.schema, backend, **UNPROVEN)

    def made() -> tuple[Matcher, Matcher]:
        kept, free = make(), make()
        assert kept.counted is not None
        free.counted = None
        return kept, free

    judge_walks(served, case, made, by_jsonschema(case), random.Random(name))


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
    most = MOST[whitespace]
    kept, free = (
        served.matchers(kind, tag if case.is_tag else case.schema, backend, whitespace=one, **UNPROVEN)
        for one in (most, MOST["Unbounded"])
    )
    bound = BOUND if case.is_tag else most
    breaks = by_length_of_runs(case, bound)
    judge_walks(served, case, lambda: (kept(), free()), breaks, random.Random(name), most=(bound or 0) + 1)


# --- llguidance compiles bounds itself, if it is told to: its whole masks judge those of counting.
def twins(served: WorkerAndRank, kind: Any, whole: Any, relaxed: Any, positions: Any) -> Iterator[Matcher]:
    """Yield a matcher that counts beside a grammar, and one whose grammar has the bounds."""
    for key, spec, wheres in (("ours", relaxed, positions), ("theirs", whole, [])):
        source = served.backends["guidance"].compile(kind, json.dumps(spec)).source()
        load = Load(key=key, backend="guidance", spec=source, positions=wheres)
        assert not served.ranks.load(load).error
        yield served.ranks.matcher(key, [EOS])


def compare(served: WorkerAndRank, walk: Walk, steps: int) -> None:
    """Walk in two grammars, whose masks must be equal, after drafts as well."""
    ours, theirs = walk.matchers
    for _ in range(steps):
        mask = rows(served, ours)[0]
        drafts = [walk.chance.choice(np.flatnonzero(mask).tolist()), walk.chance.randrange(2, len(mask))]
        assert (rows(served, ours, drafts) == rows(served, theirs, drafts)).all(), walk.text
        assert ours.valid_prefix(drafts) == theirs.valid_prefix(drafts)
        if not walk.goes_on(mask, hurries=False):
            break


@pytest.mark.parametrize("name", LENGTHS)
def test_masks_and_drafts_are_those_of_the_bounds_that_llguidance_compiles(
    served: WorkerAndRank, name: str
) -> None:
    schema, texts, _ = LENGTHS[name]
    chance = random.Random(name)
    relaxed, positions = followed.split(json.loads(json.dumps(schema)), "guidance")
    assert positions
    for text in texts * 2:
        pair = [*twins(served, "json", schema, relaxed, positions)]
        compare(served, Walk(served, pair, begins(text, chance), chance), 40)


ONE, TWO = {"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2, "maxLength": 3}
VALUES = [ONE, obj(a=ONE), obj(a=TWO, b={"type": "integer"}), {"type": "integer"}, {"type": "null"}]
VALUES.append({"type": "array", "items": TWO, "maxItems": 2})


def valued(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def tag_of(begin: str, schema: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": valued(schema), "end": end}


def drawn_format(chance: random.Random) -> dict[str, Any]:
    """Return a form of texts around values, which contain one another or run into one another, or do not."""

    def text() -> str:
        return "".join(chance.choices('a<"{}', k=chance.randint(1, 3)))

    def listed() -> dict[str, Any]:
        tags = [tag_of(text(), chance.choice(VALUES), text()) for _ in range(chance.randint(1, 3))]
        length = chance.randint(1, 3)
        triggers = sorted({tag["begin"][:length] for tag in tags})
        return chance.choice(
            [
                {"type": "triggered_tags", "triggers": triggers, "tags": tags},
                {"type": "tags_with_separator", "tags": tags, "separator": text()},
            ]
        )

    texts = [{"type": "const_string", "value": text()} for _ in range(2)]
    return chance.choice(
        [
            listed(),
            {"type": "sequence", "elements": [texts[0], listed(), texts[1]]},
            {"type": chance.choice(["plus", "star", "optional"]), "content": listed()},
            {"type": "or", "elements": [listed(), listed()]},
        ]
    )


def test_where_a_value_of_a_tag_begins_is_told_by_the_text_alone() -> None:
    served, judged = WorkerAndRank.of("awkward"), 0
    weights = np.array([40.0 if len(one) == 1 and one in b'a<"{}[]:,' else 1e-3 for one in served.tokens])
    for number in range(600):
        chance = random.Random(number)
        tag = {"type": "structural_tag", "format": drawn_format(chance)}
        relaxed, positions = tagged.split(tag, "guidance")
        try:
            pair = [*twins(served, "structural_tag", tag, relaxed, positions)] if positions else []
        except BackendError:  # it is not told which of two texts is meant
            continue
        if pair:
            compare(served, Walk(served, pair, "", chance, weights), 60)
            judged += 1
    assert judged > 5


FREE: dict[str, Any] = {"type": "triggered_tags", "triggers": ["}{"], "tags": [tag_of("}{", ONE, "!")]}
BRACE = {"type": "const_string", "value": "{"}


@pytest.mark.parametrize(
    ("form", "is_counted"),
    [
        (FREE, True),
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
    tag = {"type": "structural_tag", "format": form}
    _, positions = tagged.split(tag, "guidance")
    try:
        WorkerAndRank.of("awkward").backends["guidance"].compile("structural_tag", json.dumps(tag))
    except BackendError:
        positions = []
    assert bool(positions) == is_counted

"""Strategies of JSON Schemas as users write them, the odd and the unsupported ones among them."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Schema = dict[str, Any]

_COMMON = ("id", "name", "count", "tags", "note", "city", "price", "a", "b", "größe")
NAMES = st.sampled_from([*_COMMON, "two words", "$ref", 'q"', "x/y"])
WORDS = st.sampled_from(["alpha", "beta", "gamma", "red", "Rot & Blau", "", "ünïcode", 'say "hi"', "a\nb"])
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "uri", "hostname", "duration")
PATTERNS = (
    r"^[a-z]{2,8}$",
    r"^[A-Z]{3}-[0-9]{3,6}$",
    r"^\d{3}-\d{4}$",
    r"^(foo|bar|baz)(,(foo|bar|baz))*$",
    r"^[^@\s]+@[a-z]+\.(com|org)$",
    r"^\+?[0-9 ]{1,12}$",
    r"^#[0-9a-fA-F]{6}$",
    r"^v[0-9]+\.[0-9]+(-rc[0-9])?$",
    r"[0-9]",
    "^.{0,10}$",
    r'^"[a-z]*"$',
    r"^[a-z]+\\[a-z]\n?$",
    r"^\S+$",
)
# Lengths: most are small, some are larger than what the backends like to compile.
LENGTHS = st.integers(0, 12) | st.integers(13, 60) | st.sampled_from([100, 101, 128, 255, 500, 2000])
# Keywords beside one that could rule alone, or without the type that they are for.
_BESIDE: list[Schema] = [
    {"type": "integer", "enum": [1, 2, 30], "minimum": 2},
    {"type": "string", "enum": ["a", "abc", "b"], "minLength": 2},
    {"type": ["string", "null"], "enum": ["a", "b", None]},
    {"type": "string", "anyOf": [{"const": "x"}, {"type": "integer"}, {"pattern": "^[yz]$"}]},
    {"allOf": [{"type": "integer"}], "maximum": 30},
    {"minimum": 3, "maximum": 40},
    {"pattern": "^a[b-e]$"},
]
_TYPES: list[Schema] = [{"type": "null"}, {"type": ["string", "null"]}, {"type": ["integer", "boolean"]}]
RECURSIVE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


def schemas() -> SearchStrategy[Schema]:
    """Return schemas of whole documents: mostly objects, as in use."""
    document = weighted((6, _object(2)), (2, _array(2)), (1, _leaf()), (1, _alternatives(1)))
    return weighted((8, document), (3, _with_definitions()), (1, st.just(RECURSIVE)))


def weighted(*choices: tuple[int, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Return one of several strategies, each as often as its weight says."""
    spread = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(range(len(spread))).flatmap(spread.__getitem__)


def _rarely(often: int, *fields: Schema) -> SearchStrategy[Schema]:
    """Return strategies of nothing, so often, and of each of some fields once."""
    return weighted((often, st.just({})), *((1, st.just(one)) for one in fields))


def value(depth: int) -> SearchStrategy[Schema]:
    """Return schemas of values that nest `depth` levels at most."""
    if depth == 0:
        return _leaf()
    return weighted(
        (8, _leaf()), (3, _object(depth - 1)), (3, _array(depth - 1)), (1, _alternatives(depth - 1))
    )


def _leaf() -> SearchStrategy[Schema]:
    return weighted(
        (3, _string()),
        (1, _bounded_string()),
        (1, st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern})),
        (1, st.sampled_from(FORMATS).map(lambda name: {"type": "string", "format": name})),
        (2, _integer()),
        (2, _number()),
        (1, st.just({"type": "boolean"})),
        (1, st.sampled_from(_BESIDE)),
        (1, st.sampled_from(_TYPES)),
        (2, _enum()),
        (1, st.one_of(WORDS, st.integers(-5, 500), st.none()).map(lambda constant: {"const": constant})),
    )


def _string() -> SearchStrategy[Schema]:
    return st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"description": st.just("a text"), "title": WORDS}
    )


@st.composite
def _bounded_string(draw: DrawFn) -> Schema:
    low, high = sorted((draw(LENGTHS), draw(LENGTHS)))
    bounds = {"minLength": low, "maxLength": high}
    kept = draw(st.sampled_from([*[["maxLength"]] * 3, ["minLength"], *[list(bounds)] * 2]))
    schema: Schema = {"type": "string"} | {name: bounds[name] for name in kept}
    if "minLength" in schema:  # a text so long fills the answer
        schema["minLength"] = min(schema["minLength"], 20)
    return schema | draw(_rarely(8, {"pattern": "^[a-z]*$"}, {"format": "date"}))


@st.composite
def _integer(draw: DrawFn) -> Schema:
    low, high = sorted((draw(st.integers(-1000, 100_000)), draw(st.integers(-50, 1000))))
    both = [["minimum", "maximum"], ["exclusiveMinimum", "exclusiveMaximum"]]
    chosen = [[], [], ["minimum"], ["maximum"], *both]
    bounds = {"minimum": low, "maximum": high, "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
    found = {"type": "integer"} | {name: bounds[name] for name in draw(st.sampled_from(chosen))}
    return found | draw(_rarely(15, {"multipleOf": 5}))


@st.composite
def _number(draw: DrawFn) -> Schema:
    low = draw(st.sampled_from([-1.5, 0, 0.25, 3, -1000]))
    high = low + draw(st.sampled_from([0.5, 1, 99.75, 1e6]))
    both = [["minimum", "maximum"], ["exclusiveMinimum", "maximum"]]
    chosen = [[], [], ["minimum"], *both, ["exclusiveMaximum"]]
    bounds = {"minimum": low, "maximum": high, "exclusiveMinimum": low, "exclusiveMaximum": high}
    return {"type": "number"} | {name: bounds[name] for name in draw(st.sampled_from(chosen))}


def _enum() -> SearchStrategy[Schema]:
    members = st.one_of(WORDS, st.integers(-5, 500), st.booleans(), st.none())
    texts = st.lists(WORDS, min_size=1, max_size=5, unique=True)
    mixed = st.lists(members, min_size=1, max_size=5, unique_by=lambda member: (type(member), member))
    return st.one_of(
        texts.map(lambda chosen: {"type": "string", "enum": chosen}),
        mixed.map(lambda chosen: {"enum": chosen}),
    )


@st.composite
def _object(draw: DrawFn, depth: int) -> Schema:
    properties = draw(st.dictionaries(NAMES, value(depth), min_size=1, max_size=4))
    required = draw(st.lists(st.sampled_from(list(properties)), unique=True))
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    more = draw(
        weighted(
            (5, st.just({"additionalProperties": False})),
            (3, st.just({})),
            (1, st.just({"additionalProperties": {"type": "integer"}})),
            (1, st.just({"patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": False})),
            (1, st.just({"propertyNames": {"pattern": "^[a-z]+$"}})),
            (1, st.just({"minProperties": 1, "maxProperties": len(properties)})),
            (1, st.just({"anyOf": [{"required": [name]} for name in properties]})),
            (1, st.just({"required": [*properties, "more"]})),
        )
    )
    if "propertyNames" in more:  # a map, as users write it
        return {"type": "object", "additionalProperties": draw(value(0))} | more
    return schema | more


@st.composite
def _array(draw: DrawFn, depth: int) -> Schema:
    schema: Schema = {"type": "array", "items": draw(value(depth))}
    low, high = sorted((draw(st.integers(0, 3)), draw(st.integers(0, 5))))
    bounds = {"minItems": low, "maxItems": high}
    for name in draw(st.sampled_from([[], ["minItems"], ["maxItems"], ["minItems", "maxItems"]])):
        schema[name] = bounds[name]
    prefix = {"prefixItems": [{"type": "integer"}]}
    return schema | draw(_rarely(12, {"uniqueItems": True}, prefix, prefix))


@st.composite
def _alternatives(draw: DrawFn, depth: int) -> Schema:
    branches = draw(st.lists(value(depth), min_size=2, max_size=3))
    keyword = draw(weighted((3, st.just("anyOf")), (2, st.just("oneOf")), (1, st.just("allOf"))))
    return {keyword: branches[:1] if keyword == "allOf" else branches}


@st.composite
def _with_definitions(draw: DrawFn) -> Schema:
    """A document that names its parts under $defs (or definitions, as older ones do)."""
    home = draw(st.sampled_from(["$defs", "definitions"]))
    parts = {"part": draw(value(1)), "other part": draw(_leaf())}
    references = [{"$ref": f"#/{home}/part"}, {"$ref": f"#/{home}/other%20part"}]
    properties: dict[str, Schema] = {
        "first": references[0],
        "list": {"type": "array", "items": draw(st.sampled_from(references)), "maxItems": 2},
        "own": draw(_leaf()),
    }
    return {
        "type": "object",
        "properties": properties,
        "required": draw(st.sampled_from([["first"], ["first", "list", "own"], []])),
        "additionalProperties": draw(st.booleans()),
        home: parts,
    }

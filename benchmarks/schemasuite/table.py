"""docs/json-schema.md: what is enforced, refused and produced though invalid, and by whom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from schemasuite.cases import DRAFTS
from schemasuite.keywords import Made, shares
from schemasuite.outcomes import Counts, Outcome
from schemasuite.pairs import refusals

_NAMES: Final = {"ours": "ours (`Auto`)", "xgrammar": "xgrammar alone", "guidance": "llguidance alone"}
_HEAD: Final = ("cases enforced", "refused", "**produced though invalid**", "without any valid one")
_DOCUMENT: Final = """\
# JSON Schema: what is enforced

**Properties come in the schema's order, always**: that of `properties`, whatever is required. A model that
writes another order is not followed. In an object that takes further names it has passed `age`, begins it
all the same, and can then only go on with a longer name (`"age2"`): the text stays valid, and what follows is
junk. In a closed object, what is optional and comes later in the model's order is left out. So

- write the names in your prompt in the schema's order, and what the model is to think of before its answer
  first;
- close the object (`additionalProperties: false`, or do not mention it), and require what you need.

## How it was measured
`make schema-table SUITE=.../JSON-Schema-Test-Suite/tests` writes this page, with
{versions}.

Each case of [JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite) has a
schema and instances, valid and invalid. A schema is *refused*, or taken; then every instance is walked,
as tokens, through the grammar: ours through a rank's own matcher with its counted bounds, a library's
through that library alone, asked as vLLM 0.32 asks it. An object's properties are tried in every order. A
case is *enforced* if no invalid instance can be generated, and *produced though invalid* if one can.
Cases without an invalid instance are left out. Cases of draft 7 say so in `$schema`. "Without any valid
one": enforced cases that have valid instances, none of which can be generated; mostly because JSON Schema
takes values of any other type where a library generates one type alone.

{tables}
**optional/** holds what JSON Schema leaves to implementations. {optional}

## What a schema means here
Each schema is first written in one normal form (`sidecar/guided_sidecar/grammar/schema/normal.py` lists
what becomes what), which both libraries then read alike: `make fuzz-schemas` draws compositions of all
keywords and compares.

- **Enforced**: `$ref` that is `#` or a path, `#/...`; `oneOf` whose branches are plainly apart: by their
  types or listed values or those of a property that both require, by a name that one requires and the
  other, closed, has not, or by names that each requires and the other does not; `dependent*`;
  `propertyNames` that is a pattern, a length or a list (beside `patternProperties` a list alone);
  `minProperties` and `maxProperties`, but above 1 where names are open or nothing is said of further ones,
  or beside `patternProperties` and optional properties; `enum` and `const` beside any other keyword; a
  pattern means a match anywhere in the text, unless it has anchors, with what ECMA-262 has in `.`, `\\s`,
  `\\w` and `\\d`, and lookahead anywhere in it, as far as that can be written without; of the formats
  `date`, `time` and `date-time` (RFC 3339 with capital letters; days that the month has, no leap seconds),
  `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `json-pointer`, `regex`, `relative-json-pointer`, `uri`,
  `uri-reference`, `uri-template` and `uuid`, and in ASCII alone `idn-email`, `idn-hostname`, `iri` and
  `iri-reference`; `uniqueItems` over an enum of few values, and over strings without `maxLength`, `format`
  or `pattern` and numbers without bounds, `null` and booleans beside them (in tools where the text alone
  tells where a value begins: of `hermes`, `qwen3_json`, `llama3_json`, `llama4_json` and `longcat`, and
  forced ones of `deepseek_v3`, `deepseek_v31` and `plamo3`). In tools of the parsers that
  [routes](routes.md#tools) lists for xgrammar, what that enforces of all this.
- **Refused**, with the path: a `$ref` by an anchor or an address, or in a part that has an address of its
  own (`$id`), a part whose `$schema` names another draft than the schema's, `$dynamicRef`, `$recursiveRef`,
  `unevaluatedItems` and `unevaluatedProperties`, `contains`, `not` (but `not: {}`), `if` with `then` or
  `else`, a branch of `oneOf` that may overlap another, `uniqueItems` over objects, arrays and anything,
  beside another schema of the array, of further names beside named ones, or in a schema with a property
  whose name has characters that are not printable, lookbehind and `\\b`, bounds beyond 2^53 (of integers
  2^63) that leave nothing else, and values that both libraries round.
- **Too many**: an object of more than about 400 optional properties, or as many alternatives at one place.
- **Annotations**, which change nothing: unknown keywords and formats, keywords of a later draft than
  the schema's, and keywords about other types than `type` names.
- **Closed**: an object that names properties and says nothing about others has those that are named,
  with `additionalProperties: true` any; an array with `prefixItems`, and nothing beside them that says or
  needs more, has no further items. A schema whose keywords are all about one type has that type.
- **Valid, and never generated**: negative numbers with `multipleOf`; beside bounds of numbers,
  exponents, numbers of 2^63 and more below a larger `maximum` and, by xgrammar, a seventh digit behind
  the point; the character U+007F, by llguidance, but as an escape; an array of more than 16,384 items;
  with `uniqueItems` over a long enum, another order than the list's; beside `patternProperties`, names that
  no pattern matches; further names, and names of a length, with control characters; of the format
  `hostname`, more than six labels or longer ones than 41 characters; of `regex`, groups, counts and
  alternatives; of `uri-reference`, addresses in brackets; of `uri-template`, what is not ASCII; of a branch
  of `oneOf` that required names tell apart, the names that another branch requires and it does not.
- **Never ends**: a schema each of whose values holds another one of them is served, and its answer ends with
  `length`.
- **Twice**: of a key that stands twice in an object of a schema, the last one counts.
- **Spelling**: numbers and escapes that mean the same may be spelt otherwise by the two libraries, and
  within an array or object of `enum` or `const` xgrammar writes no white space.

## Two keywords at a time
`oneOf` has branches here that constants of one property, or listed values, tell apart; `uniqueItems` has
listed items.

{pairs}

## Keywords
Ours: of the suite's cases about a keyword that have an invalid instance, those enforced; the others are
refused. What each library makes of it alone, without a type beside it and with one: *enforced*, *ignored*
(accepted, and something invalid can be generated in every case), *partly*, *refused*. Under
`unsupportedKeywords: Route` a schema goes to a library that enforces all of it; where none does, and
under `Reject` where the first choice does not, the answer is 400 `grammar_unsupported` with the keyword's
path. Under `Allow` such a keyword is left out, and the response's header `x-guidedmodel-unenforced` has its
path ([routes.md](routes.md#options-of-a-request)). Which of the *partly* cases a library does enforce is in
`guided_grammar/*/unenforced.py`.

{keywords}
"""


def document(
    versions: Mapping[str, str],
    outcomes: Mapping[str, Sequence[Outcome]],
    untyped: Mapping[str, Mapping[str, Made]],
    typed: Mapping[str, Mapping[str, Made]],
    of_pairs: Mapping[str, Sequence[Outcome]],
) -> str:
    """Return the page's text.

    Parameters
    ----------
    outcomes
        Of all cases, by subject.
    untyped, typed
        What a library makes of a keyword.
    of_pairs
        Of all pairs of keywords, by subject.
    """
    ours = [one for one in outcomes["ours"] if not one.case.is_optional]
    return (
        _DOCUMENT.replace("{versions}", ", ".join(f"{name} {version}" for name, version in versions.items()))
        .replace("{tables}", "\n".join(_tables(outcomes)))
        .replace("{optional}", _optional(outcomes["ours"]))
        .replace("{pairs}", "\n".join(_pairs(of_pairs)))
        .replace("{keywords}", "\n".join(_keywords(shares(ours), untyped, typed)))
    )


def counts(outcomes: Sequence[Outcome], draft: str, *, optional: bool) -> Counts:
    """Count the cases of one draft that have an invalid instance."""
    return Counts.of(
        outcome
        for outcome in outcomes
        if outcome.case.draft == draft
        and outcome.case.is_optional == optional
        and not all(one.is_valid for one in outcome.case.instances)
    )


def _tables(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    for optional in (False, True):
        for draft in DRAFTS:
            name = f"{draft}, optional/" if optional else draft
            yield _row(
                (name, "cases enforced", "refused", "**produced though invalid**", "without any valid one")
            )
            yield _row(["---"] * (1 + len(_HEAD)))
            for subject, found in outcomes.items():
                counted = counts(found, draft, optional=optional)
                cells = [
                    f"{counted.cases[verdict]} ({counted.invalid[verdict]})"
                    for verdict in ("enforced", "refused", "produced")
                ]
                yield _row((_NAMES[subject], *cells, str(counted.barren)))
            yield ""
    yield "In brackets: invalid instances.\n"


def _optional(ours: Sequence[Outcome]) -> str:
    """Say which of the optional cases we produce."""
    produced = [outcome for outcome in ours if outcome.case.is_optional and outcome.produced]
    if not produced:
        return "Nothing of it is produced though invalid."
    names = sorted({outcome.case.keyword.removeprefix("optional/") for outcome in produced})
    return f"What we produce though invalid there is in {', '.join(f'`{name}`' for name in names)}."


def _pairs(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    yield f"{len(outcomes['ours'])} pairs (`benchmarks/schemasuite/pairs.py`), of one type each:\n"
    yield _row(("", *_HEAD))
    yield _row(["---"] * (1 + len(_HEAD)))
    for name, found in outcomes.items():
        counted = Counts.of(found)
        cells = [str(counted.cases[verdict]) for verdict in ("enforced", "refused", "produced")]
        yield _row((_NAMES[name], *cells, str(counted.barren)))
    yield ""
    for name, others in refusals(outcomes["ours"]).items():
        beside = "each" if others is None else ", ".join(f"`{other}`" for other in others)
        yield f"- `{name}` is refused beside {beside}."


def _keywords(
    ours: Mapping[str, str],
    untyped: Mapping[str, Mapping[str, Made]],
    typed: Mapping[str, Mapping[str, Made]],
) -> Iterator[str]:
    yield _row(("keyword", "ours", "xgrammar", "with a type", "llguidance", "with a type"))
    yield _row(["---"] * 6)
    for keyword in sorted({name for made in untyped.values() for name in made}):
        cells = [
            made[backend].get(keyword, "")
            for backend in ("xgrammar", "guidance")
            for made in (untyped, typed)
        ]
        yield _row((f"`{keyword}`", ours[keyword], *cells))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

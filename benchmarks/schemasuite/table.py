"""docs/json-schema.md: what is enforced, refused and produced though invalid, and by whom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from schemasuite.cases import DRAFTS
from schemasuite.keywords import Made, shares
from schemasuite.outcomes import Counts, Outcome
from schemasuite.pairs import refusals

_NAMES: Final = {"ours": "ours (`Auto`)", "xgrammar": "xgrammar", "guidance": "llguidance"}
_HEAD: Final = ("cases enforced", "refused", "**produced though invalid**", "without any valid one")
_DOCUMENT: Final = """\
# JSON Schema: what is enforced

**Properties come in the schema's order.** A model that writes another order is not followed: in an object
that takes further names it can only continue with a longer name (`"age2"`), and in a closed object late
optional properties are left out. So

- use the schema's order in your prompt, with what the model should think of first at the beginning;
- close the object (`additionalProperties: false`, or do not mention it), and require what you need.

## What a schema means here
Each schema is written in one normal form (`sidecar/guided_sidecar/grammar/schema/normal.py`), which both
libraries read; `make fuzz-schemas` compares drawn compositions of all keywords.

- **Enforced**: `$ref` to `#` or `#/...`; `oneOf` with branches that types, listed values, required names,
  or a closed branch's names separate; `dependent*`; `propertyNames` by pattern, length or list (with
  `patternProperties` a list only); `minProperties` and `maxProperties` (above 1 not where names are open,
  nor with `patternProperties` and optional properties); `enum` and `const` with any keyword; `pattern`,
  matched anywhere unless anchored, with ECMA-262's `.`, `\\s`, `\\w`, `\\d` and most lookahead;
  `uniqueItems` over a short enum, strings without `maxLength`, `format` or `pattern`, numbers without
  bounds, `null` and booleans (in tools of `hermes`, `qwen3_json`, `llama3_json`, `llama4_json`, `longcat`,
  and forced ones of `deepseek_v3`, `deepseek_v31` and `plamo3`).
- **Formats**: `date`, `time`, `date-time` (RFC 3339, capital letters, no leap seconds), `duration`,
  `email`, `hostname`, `ipv4`, `ipv6`, `json-pointer`, `regex`, `relative-json-pointer`, `uri`,
  `uri-reference`, `uri-template`, `uuid`; in ASCII `idn-email`, `idn-hostname`, `iri`, `iri-reference`.
- **Refused**, with the path: other `$ref`, also in a part with its own `$id`; a part whose `$schema` names
  another draft; `$dynamicRef`, `$recursiveRef`, `unevaluated*`, `contains`, `not` (except `not: {}`), `if`
  with `then` or `else`; a branch of `oneOf` that may overlap another; other `uniqueItems`, also with
  another schema of the array, with further names beside named ones, or with unprintable property names in
  the schema; lookbehind and `\\b`; bounds beyond 2^53 (integers 2^63) that leave nothing else; values that
  both libraries round.
- **Too many**: over about 400 optional properties, or alternatives at one place.
- **Annotations**, ignored: unknown keywords and formats, keywords of a later draft, keywords about other
  types.
- **Closed**: an object that names properties and does not mention others has only those; an array with
  `prefixItems` that nothing extends has no further items. Keywords of one type imply that type.
- **Valid, and never generated**: negative numbers with `multipleOf`; beside bounds exponents, numbers from
  2^63, and with xgrammar a seventh decimal; U+007F with llguidance, except escaped; more than 16,384 items;
  another order of a long enum's unique items; names that no pattern of `patternProperties` matches; control
  characters in further names; `hostname` with more than six labels or labels above 41 characters; groups,
  counts and alternatives of `regex`; brackets in `uri-reference`; non-ASCII in `uri-template`; in a branch
  of `oneOf`, names that another branch requires.
- **Never ends**: a schema whose every value contains another; its answer ends with `length`.
- The last of two equal keys in an object counts. Numbers and escapes may be spelt differently by the
  libraries.

In tools that xgrammar serves ([routes](routes.md#tools)), what xgrammar enforces of this.

## Measured
`make schema-table SUITE=.../JSON-Schema-Test-Suite/tests` writes this page, with {versions}.

Each instance of [JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite) is
walked as tokens through the grammar, ours through a rank's matcher, a library's as vLLM 0.32 asks it;
properties in every order. *Enforced*: no invalid instance can be generated. *Without any valid one*:
enforced, and no valid instance can be generated, mostly of another type. Cases without an invalid instance
are left out. In brackets: invalid instances.

{tables}
**optional/** is what JSON Schema leaves to implementations. {optional}

## Two keywords at a time
{pairs}

## Keywords
Ours: of the suite's cases about a keyword with an invalid instance, those enforced; others are refused. A
library alone, without a type beside the keyword and with one: *enforced*, *ignored* (in every case
something invalid can be generated), *partly*, *refused*. `guided_grammar/*/unenforced.py` has the partly
enforced cases, and [routes.md](routes.md#backends) says what happens to a keyword that is not enforced.

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
    yield _row(("draft", "by", *_HEAD))
    yield _row(["---"] * (2 + len(_HEAD)))
    for optional in (False, True):
        for draft in DRAFTS:
            name = f"{draft}, optional/" if optional else draft
            for subject, found in outcomes.items():
                counted = counts(found, draft, optional=optional)
                cells = [
                    f"{counted.cases[verdict]} ({counted.invalid[verdict]})"
                    for verdict in ("enforced", "refused", "produced")
                ]
                yield _row((name, _NAMES[subject], *cells, str(counted.barren)))
    yield ""


def _optional(ours: Sequence[Outcome]) -> str:
    """Say which of the optional cases we produce."""
    produced = [outcome for outcome in ours if outcome.case.is_optional and outcome.produced]
    if not produced:
        return "Nothing of it is produced though invalid."
    names = sorted({outcome.case.keyword.removeprefix("optional/") for outcome in produced})
    return f"What we produce though invalid there is in {', '.join(f'`{name}`' for name in names)}."


def _pairs(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    yield f"{len(outcomes['ours'])} pairs of one type each (`benchmarks/schemasuite/pairs.py`):\n"
    yield _row(("", *_HEAD))
    yield _row(["---"] * (1 + len(_HEAD)))
    for name, found in outcomes.items():
        counted = Counts.of(found)
        cells = [str(counted.cases[verdict]) for verdict in ("enforced", "refused", "produced")]
        yield _row((_NAMES[name], *cells, str(counted.barren)))
    yield ""
    yield from _refused(refusals(outcomes["ours"]))


def _refused(found: Mapping[str, Sequence[str] | None]) -> Iterator[str]:
    """Yield a line for all keywords that are refused beside the same others."""
    together: dict[str, list[str]] = {}
    for name, others in found.items():
        beside = "each" if others is None else ", ".join(f"`{other}`" for other in others)
        together.setdefault(beside, []).append(f"`{name}`")
    for beside, names in together.items():
        yield f"- {', '.join(names)}: refused beside {beside}."


def _keywords(
    ours: Mapping[str, str],
    untyped: Mapping[str, Mapping[str, Made]],
    typed: Mapping[str, Mapping[str, Made]],
) -> Iterator[str]:
    yield _row(("keyword", "ours", "xgrammar", "with a type", "llguidance", "with a type"))
    yield _row(["---"] * 6)
    together: dict[tuple[str, ...], list[str]] = {}
    for keyword in sorted({name for made in untyped.values() for name in made}):
        cells = [
            made[backend].get(keyword, "")
            for backend in ("xgrammar", "guidance")
            for made in (untyped, typed)
        ]
        together.setdefault((ours[keyword], *cells), []).append(f"`{keyword}`")
    for verdicts, keywords in together.items():
        yield _row((", ".join(keywords), *verdicts))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

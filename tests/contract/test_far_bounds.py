"""Counts and repetitions beyond 32 and 64 bits: kept or refused, never another number or multiplied out."""

import json
import re
from typing import Any

import pytest

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.schema import normal
from support.compositions import told_apart
from support.compositions.judge import Judge
from support.compositions.libraries import LIBRARIES as BACKENDS
from support.compositions.libraries import Compilers
from support.worker_and_rank import WorkerAndRank

VALUES = [json.dumps(value, ensure_ascii=False) for value in told_apart.values()]


BOUNDS = [1 << 31, (1 << 32) + 2, 10**20]
COUNTED = [
    *(({"type": "string", one: "N"}, f"$.{one}") for one in ("minLength", "maxLength")),
    *(({"type": "array", one: "N"}, f"$.{one}") for one in ("minItems", "maxItems")),
    *(({"type": "object", one: "N"}, f"$.{one}") for one in ("minProperties", "maxProperties")),
    *(({"type": "integer", one: "N"}, f"$.{one}") for one in ("minimum", "maximum", "multipleOf")),
    *(({"type": "number", one: "N"}, f"$.{one}") for one in ("exclusiveMinimum", "exclusiveMaximum")),
    *(({"type": "string", "pattern": "^a", one: "N"}, f"$.{one}") for one in ("minLength", "maxLength")),
    ({"type": "object", "propertyNames": {"maxLength": "N"}}, "$.propertyNames"),
    ({"type": "object", "propertyNames": {"minLength": "N"}}, "$.propertyNames"),
]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("schema", "path"), COUNTED, ids=lambda one: json.dumps(one)[:70])
def test_a_bound_beyond_all_integers_is_kept_or_refused_with_its_path(
    schema: Any, path: str, bound: int
) -> None:
    """Of a form, no number is what is left of one that wrapped around, and none is multiplied out."""
    written = json.loads(json.dumps(schema).replace('"N"', str(bound)))
    error, form = None, None
    try:
        form = normal.read(written).schema
    except GuidedError as refused:
        error = refused
    if error is not None:
        assert error.path == path
        assert error.code in {"grammar_too_large", "grammar_unsupported"}
        return
    assert len(json.dumps(form)) < 2000
    judges = [Judge(written), Judge(json.loads(re.sub(r",2147483647\}", ",}", json.dumps(form))))]
    for text in VALUES:
        valid, taken = (judge.fault(text) is None for judge in judges)
        assert valid == taken, text


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        *(("regex", one) for one in ("a{%d}", "a{0,%d}", "a{%d,}", "(a|b){3,%d}", r"\\\\{%d}")),
        *(("grammar", f'root ::= "a"{{{one}}}') for one in ("%d", "0,%d", "%d,", " 2 , %d ")),
        *(("grammar", f'start: "a"{one}') for one in ("~%d", "~1..%d", "{%d}", "{1,%d}")),
        ("grammar", "start: /a{%d}/"),
        ("grammar", 'start: X\nX: "a"{%d}'),
    ],
)
def test_a_repetition_beyond_32_bits_is_refused(
    served: WorkerAndRank, kind: Any, spec: str, bound: int
) -> None:
    """xgrammar read 2^32 as none, and compiled that."""
    for backend in BACKENDS:
        error = served.refusal(kind, spec % bound, backend)
        assert error is not None
        assert error.code == "grammar_unsupported", error
    key = "pattern" if kind == "regex" else "grammar"
    tag = {"type": "structural_tag", "format": {"type": kind, key: spec % bound}}
    inside = served.refusal("structural_tag", tag)
    assert inside is not None
    assert (inside.code, inside.path) == ("grammar_unsupported", f"$.format.{key}")


def test_braces_in_a_text_are_no_repetition(served: WorkerAndRank) -> None:
    assert served.refusal("grammar", 'root ::= "a{4294967296}"') is None
    assert served.refusal("regex", r"a\{4294967296\}~99999999999") is None


FAR = [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 2, (1 << 63) - 1]
FAR += [-(1 << 53), -(1 << 53) - 1, 1 - 10**18, -(1 << 63)]


@pytest.mark.parametrize("bound", FAR)
@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
def test_an_integers_bound_beyond_all_doubles_is_no_other_number(
    compilers: Compilers, keyword: str, bound: int
) -> None:
    """llguidance read 2^53 + 1 as 2^53; bounds that far types have, as int64, are served all the same."""
    schema = {"type": "integer", keyword: bound}
    judge, served, refusals = Judge(schema), [], set()
    for backend in BACKENDS:
        try:
            grammar = compilers.compiled(schema, backend)
        except GuidedError as error:
            refusals.add((error.code.value, error.path))
            continue
        served.append(backend)
        near = [str(bound + far) for far in (-1025, -513, -129, *range(-3, 4), 129, 513, 1025)]
        assert [text for text in near if grammar.accepts(text, apart=True) and judge.fault(text)] == []
    assert refusals <= {("grammar_unsupported", f"$.{keyword}")}
    if (keyword, bound) in {("minimum", -(1 << 63)), ("maximum", (1 << 53) - 1), ("maximum", (1 << 63) - 1)}:
        assert served == BACKENDS

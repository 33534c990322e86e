"""What a refusal says: a code for what is broken and one for what a library cannot do, and where it stands.

Real libraries; whether a schema is valid, jsonschema says.
"""

import json
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Job
from support import tokenizers

INVALID, UNSUPPORTED, DEAD_END = "grammar_invalid", "grammar_unsupported", "grammar_dead_end"


def text(pattern: str, **more: Any) -> Any:
    return {"type": "string", "pattern": pattern, **more}


def of(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


MANY = {f"p{number}": {"type": "integer"} for number in range(60)}
SCHEMAS: list[tuple[Any, str, str]] = [
    # Broken.
    (text("("), INVALID, "$.pattern"),
    (text("[b-a]"), INVALID, "$.pattern"),
    (text("a{2,1}"), INVALID, "$.pattern"),
    (text("["), INVALID, "$.pattern"),
    (of(a=text("(?P<n")), INVALID, "$.properties.a.pattern"),
    (of(**MANY, q=text("a)")), INVALID, "$.properties.q.pattern"),
    ({"type": "object", "patternProperties": {"(": {}}}, INVALID, "$.patternProperties['(']"),
    ({"type": "integre"}, INVALID, "$.type"),
    ({"type": "object", "required": "a"}, INVALID, "$.required"),
    ({"properties": []}, INVALID, "$.properties"),
    ({"minimum": "a"}, INVALID, "$.minimum"),
    ({"maxLength": -1}, INVALID, "$.maxLength"),
    ({"items": 5}, INVALID, "$.items"),
    ({"anyOf": []}, INVALID, "$.anyOf"),
    ({"type": "number", "multipleOf": 0}, INVALID, "$.multipleOf"),
    ({"$ref": "#/$defs/none"}, INVALID, "$.$ref"),
    (text("a(?=b"), INVALID, "$.pattern"),
    ({"$ref": "#/x", "x": {"pattern": "("}}, INVALID, "$.x.pattern"),
    # Valid, and more than a library can do.
    (text("^(?<=a)b"), UNSUPPORTED, "$.pattern"),
    (text(r"(a)\1"), UNSUPPORTED, "$.pattern"),
    (text(r"\bfoo\b"), UNSUPPORTED, "$.pattern"),
    (text(r"^\cA$"), UNSUPPORTED, "$.pattern"),
    (
        of(a=of(b={"anyOf": [{"type": "integer"}, text(r"^a\b$")]})),
        UNSUPPORTED,
        "$.properties.a.properties.b.anyOf[1].pattern",
    ),
    (of(**MANY, q=text(r"^a\b$")), UNSUPPORTED, "$.properties.q.pattern"),
    (
        of(**MANY, q=of(**MANY, r={"items": text(r"\B")})),
        UNSUPPORTED,
        "$.properties.q.properties.r.items.pattern",
    ),
    (
        {"$defs": {"x": text(r"^\b")}, "type": "array", "items": {"$ref": "#/$defs/x"}},
        UNSUPPORTED,
        "$.$defs.x.pattern",
    ),
    ({"type": "array", "prefixItems": [{}, text(r"\B")]}, UNSUPPORTED, "$.prefixItems[1].pattern"),
    (
        {"type": "object", "additionalProperties": text("x(?<!y)")},
        UNSUPPORTED,
        "$.additionalProperties.pattern",
    ),
    ({"type": "object", "patternProperties": {"^(?=a)b": {}}}, UNSUPPORTED, "$.patternProperties['^(?=a)b']"),
    ({"type": "object", "propertyNames": {"pattern": r"\bx"}}, UNSUPPORTED, "$.propertyNames"),
    ({"type": "object", "propertyNames": {"format": "email"}}, UNSUPPORTED, "$.propertyNames"),
    ({"type": "number", "multipleOf": 1e-300}, UNSUPPORTED, "$.multipleOf"),
    ({"type": "integer", "multipleOf": 10**20}, UNSUPPORTED, "$.multipleOf"),
    (
        of(a={"type": "array", "items": {"multipleOf": 1e-300}}),
        UNSUPPORTED,
        "$.properties.a.items.multipleOf",
    ),
    ({"type": "object", "minProperties": 2}, UNSUPPORTED, "$.minProperties"),
    ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, UNSUPPORTED, "$.uniqueItems"),
    ({"type": "array", "contains": {"const": "a"}}, UNSUPPORTED, "$.contains"),
    ({"allOf": [{"contains": {"type": "integer"}}]}, UNSUPPORTED, "$.allOf[0].contains"),
    ({"oneOf": [text("^a"), text("^b")]}, UNSUPPORTED, "$.oneOf[1]"),
    ({"$dynamicRef": "#x"}, UNSUPPORTED, "$.$dynamicRef"),
    ({"$ref": "http://a.b/c"}, UNSUPPORTED, "$.$ref"),
    ({"unevaluatedProperties": False, "anyOf": [of(a={}), of(b={})]}, UNSUPPORTED, "$.unevaluatedProperties"),
    ({"if": {"required": ["b"]}, "then": {"required": ["a"]}}, UNSUPPORTED, "$.if"),
    ({"if": {"required": ["b"]}, "else": {"required": ["a"]}}, UNSUPPORTED, "$.if"),
    ({**of(a={}), "patternProperties": {"^x": {}}, "minProperties": 1}, UNSUPPORTED, "$.minProperties"),
    ({"type": "integer", "not": {"const": 3}}, UNSUPPORTED, "$.not"),
    ({"x-guidance": {"lenient": True}}, UNSUPPORTED, "$['x-guidance']"),
    # Valid, and nothing is valid under it.
    ({"type": "integer", "minimum": 5, "maximum": 3}, DEAD_END, "$.minimum"),
    ({"type": "array", "minItems": 3, "maxItems": 1}, DEAD_END, "$.minItems"),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0}, DEAD_END, "$.exclusiveMinimum"),
    (
        {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 3, "uniqueItems": True},
        DEAD_END,
        "$.uniqueItems",
    ),
    (text("^a$", minLength=3), DEAD_END, "$.pattern"),
    ({"type": "string", "format": "date", "maxLength": 5}, DEAD_END, "$.format"),
    ({"allOf": [text("^a+$"), text("^b+$")]}, DEAD_END, "$.allOf[0].pattern"),
    ({"const": 1, "type": "string"}, DEAD_END, "$.const"),
    ({"enum": ["2021-02-29", "x"], "format": "date"}, DEAD_END, "$.format"),
    ({**of(a={}), "required": ["a", "b"], "additionalProperties": False}, DEAD_END, "$.required"),
]
OTHERS: list[tuple[str, str, str]] = [
    ("regex", "(", INVALID),
    ("regex", "[b-a]", INVALID),
    ("regex", "a{2,1}", INVALID),
    ("regex", "*a", INVALID),
    ("regex", "(?P<n", INVALID),
    ("regex", "a(?=b)", UNSUPPORTED),
    ("regex", "(?<!a)b", UNSUPPORTED),
    ("regex", r"(a)\1", UNSUPPORTED),
    ("regex", r"\bx", UNSUPPORTED),
    ("regex", "x^y", UNSUPPORTED),
    ("regex", "a{1,999999999999}", UNSUPPORTED),
    ("grammar", 'root ::= "a', INVALID),
    ("grammar", "root ::= (((", INVALID),
    ("grammar", "root ::= unknown", INVALID),
    ("grammar", r"root ::= [\d]", UNSUPPORTED),
    ("regex", r"a\ud800", UNSUPPORTED),
    ("regex", r"\uD83D\uDE00", UNSUPPORTED),
    ("grammar", 'start: "a', INVALID),
    ("grammar", "start: unknown", INVALID),
    ("grammar", '%llguidance {\nstart: "a"', INVALID),
    ("grammar", "start: /a(?=b)/", UNSUPPORTED),
]


def tag(schema: Any) -> str:
    return json.dumps({"structures": [{"begin": "<f>", "schema": schema, "end": "<"}], "triggers": ["<f"]})


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    words = tokenizers.vocabulary()
    return Compiler(dict(Backends(words)), words)


def fault(compiler: Compiler, job: Job) -> GuidedError | None:
    try:
        compiler.run(job)
    except GuidedError as error:
        return error
    return None


def refusal(compiler: Compiler, kind: Any, spec: str, *backends: Any) -> GuidedError:
    more = {"timeout_s": 60, "memory_bytes": 1 << 40}
    with pytest.raises(GuidedError) as refused:
        compiler.run(Job(key="k", kind=kind, spec=spec, backends=list(backends), **more))
    assert len(refused.value.message) < 800
    return refused.value


@pytest.mark.parametrize(
    ("schema", "code", "path"), SCHEMAS, ids=[json.dumps(case[0])[-60:] for case in SCHEMAS]
)
def test_a_refused_schema_has_a_code_and_names_the_keyword(
    compiler: Compiler, schema: Any, code: str, path: str
) -> None:
    error = refusal(compiler, "json", json.dumps(schema), "xgrammar", "guidance")

    assert (error.code, error.path) == (code, path), error.message
    assert error.message.startswith(f"{path}: ")


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_no_library_alone_calls_a_valid_schema_broken_or_a_broken_one_unsupported(
    compiler: Compiler, backend: Any
) -> None:
    more = {"timeout_s": 60, "memory_bytes": 1 << 40}
    for schema, code, _ in SCHEMAS:
        job = Job(key="k", kind="json", spec=json.dumps(schema), backends=[backend], **more)
        if (error := fault(compiler, job)) is not None:
            assert (error.code == INVALID) == (code == INVALID), (schema, error.message)
            assert error.path not in {None, "$"}, (schema, error.message)


def test_what_jsonschema_calls_broken_is() -> None:
    for schema, code, _ in SCHEMAS:
        if not jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA).is_valid(schema):
            assert code == INVALID


@pytest.mark.parametrize(("kind", "spec", "code"), OTHERS)
def test_a_refused_text_has_a_code(compiler: Compiler, kind: str, spec: str, code: str) -> None:
    error = refusal(compiler, kind, spec, "xgrammar", "guidance")
    assert (error.code, error.path) == (code, None), error.message


@pytest.mark.parametrize(("schema", "code", "path"), SCHEMAS[::7])
def test_in_a_tag_the_path_is_the_tags(compiler: Compiler, schema: Any, code: str, path: str) -> None:
    error = refusal(compiler, "structural_tag", tag(schema), "xgrammar")
    assert error.path is not None
    assert error.path.startswith("$.structures[0].schema.")
    assert (error.code != INVALID) == (code != INVALID), (path, error.message)


OPEN_MAPS = (
    {"additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a$": {"type": "integer"}}, "additionalProperties": False},
)


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
@pytest.mark.parametrize("names", OPEN_MAPS, ids=["additionalProperties", "patternProperties"])
def test_each_library_counts_a_name_that_comes_twice_twice(
    compiler: Compiler, backend: Any, names: Any
) -> None:
    """So over open maps minProperties above 1 is refused; this test tells when a library no longer does."""
    schema = {"type": "object", "minProperties": 2, **names}
    twice = b'{"a":1,"a":2}'
    words = tokenizers.vocabulary()
    matcher = Backends(words)[backend].compile("json", json.dumps(schema)).matcher()

    assert matcher.accept([words.tokens.index(bytes([byte])) for byte in twice])
    assert matcher.accept([tokenizers.EOS])
    assert not jsonschema.Draft202012Validator(schema).is_valid(json.loads(twice))
    error = refusal(compiler, "json", json.dumps(schema), backend)
    assert (error.code, error.path) == (UNSUPPORTED, "$.minProperties")


DIGITS = {"type": "regex", "pattern": "[0-9]+"}
DIGITS_TAG = {"type": "tag", "begin": "<a>", "content": DIGITS, "end": "</a>"}


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ({"type": "nope"}, "$.format"),
        (5, "$.format"),
        (
            {"type": "sequence", "elements": [DIGITS, {"type": "regex", "pattern": "["}]},
            "$.format",
        ),
        ({"type": "triggered_tags", "triggers": [], "tags": [DIGITS_TAG]}, "$.format"),
        (
            {
                "type": "triggered_tags",
                "triggers": ["<a"],
                "tags": [DIGITS_TAG, {**DIGITS_TAG, "begin": "<b"}],
            },
            "$.format",
        ),
        ({"type": "tags_with_separator", "tags": [DIGITS_TAG]}, "$.format.separator"),
        ({**DIGITS_TAG, "end": []}, "$.format"),
        ({**DIGITS_TAG, "content": {"type": "grammar", "grammar": "root ::= x"}}, "$.format"),
        ({"type": "repeat", "min": -1, "max": 2, "content": DIGITS}, "$.format"),
        ({"type": "dispatch", "rules": [["a", {"type": "star"}]]}, "$.format.rules[0][1].content"),
        ({"type": "token", "token": "<nope>"}, "$.format"),
        ({"type": "json_schema", "json_schema": {}, "style": "nope"}, "$.format.style"),
    ],
    ids=json.dumps,
)
def test_what_a_library_refuses_of_a_tag_has_a_path(compiler: Compiler, form: Any, path: str) -> None:
    error = refusal(
        compiler, "structural_tag", json.dumps({"type": "structural_tag", "format": form}), "xgrammar"
    )
    assert (error.code, error.path) == ("grammar_invalid", path)


def test_so_has_what_it_refuses_of_the_older_form(compiler: Compiler) -> None:
    one = {"begin": "<a>", "schema": {}, "end": "x"}
    tag = {"structures": [one, {**one, "begin": "<b>"}], "triggers": ["<a"]}
    assert refusal(compiler, "structural_tag", json.dumps(tag), "xgrammar").path == "$"

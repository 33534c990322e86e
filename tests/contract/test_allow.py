"""unsupportedKeywords Allow: what is not enforced is told, and what is left is enforced."""

from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.compile import proof
from guided_sidecar.grammar.compile.judge import Judge
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Done
from support.worker_and_rank import EOS, WorkerAndRank

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
LOOKBEHIND = {**STRING, "pattern": "(?<=a)b"}


class Pod(WorkerAndRank):
    """Whose requests allow that something is not enforced."""

    def run(self, spec: Any, kind: Any = "json", *backends: Any, **fields: Any) -> Done:
        job = self.job(kind, spec, *backends, **{"allows": True, **fields})
        self.key = job.key
        return self.compiler.run(job)

    def accepts(self, done: Done, text: str) -> bool:
        assert not self.ranks.load(load_of(self.key, done)).error
        return self.takes(self.ranks.matcher(self.key, [EOS]), text)


@pytest.fixture(scope="module")
def pod() -> Pod:
    return Pod.of("awkward")


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


# schema, what is not enforced, what is taken only by leave, what is taken by none
BOUNDED = {"type": "number", "minimum": 0}
CASES: dict[str, tuple[Any, list[str], str, str]] = {
    "several": (
        obj(a=LOOKBEHIND, b={"type": "array", "uniqueItems": True, "items": BOUNDED}),
        ["$.properties.a.pattern", "$.properties.b.uniqueItems"],
        '{"a":"x","b":[1,1]}',
        '{"a":"x","b":[1,"1"]}',
    ),
    "one of branches that are not apart": (
        {"oneOf": [{"type": "array", "items": LOOKBEHIND}, {"type": "array", "items": STRING}]},
        ["$.oneOf[0].items.pattern", "$.oneOf"],
        '["x"]',
        "[1]",
    ),
    "names": (
        {"type": "object", "propertyNames": {"format": "email"}, "additionalProperties": INTEGER},
        ["$.propertyNames"],
        '{"x":1}',
        '{"x":"y"}',
    ),
    "names by patterns": (
        {"type": "object", "patternProperties": {"(?<=a)": STRING}, "additionalProperties": False},
        ["$.patternProperties", "$.additionalProperties"],
        '{"x":1}',
        "[]",
    ),
    "beside an enforced one": (
        obj(a={"anyOf": [INTEGER, {**LOOKBEHIND, "maxLength": 1}]}),
        ["$.properties.a.anyOf[1].pattern"],
        '{"a":"x"}',
        '{"a":"xx"}',
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_enforced_and_the_rest_is_told(pod: Pod, name: str) -> None:
    schema, unenforced, taken, refused = CASES[name]
    with pytest.raises(GuidedError) as raised:
        pod.run(schema, allows=False)
    assert raised.value.code is ErrorCode.GRAMMAR_UNSUPPORTED
    done = pod.run(schema)
    told = [one.path for one in done.unenforced]
    assert told == unenforced
    assert pod.accepts(done, taken)
    assert not pod.accepts(done, refused)


def test_of_a_structural_tag_only_a_schema_is_weakened(pod: Pod) -> None:
    tag = {"structures": [{"begin": "<a>", "schema": LOOKBEHIND, "end": "</a>"}], "triggers": ["<a"]}
    done = pod.run(tag, "structural_tag")
    assert [one.path for one in done.unenforced] == ["$.structures[0].schema.pattern"]
    assert pod.accepts(done, '<a>"x"</a>')
    assert not pod.accepts(done, "<a>1</a>")


def test_a_broken_schema_and_a_librarys_options_are_not_allowed(pod: Pod) -> None:
    for schema in ({"type": "strng"}, {"x-guidance": {"lenient": True}}):
        with pytest.raises(GuidedError):
            pod.run(schema)


def test_what_cannot_be_taken_out_is_compiled_as_vllm_does(pod: Pod) -> None:
    """Here a library of a version whose enforcement nobody knows, which is asked for nothing that matters."""
    done = pod.run(obj(a=INTEGER), unmeasured={"xgrammar": "9", "guidance": "9"})
    assert [(one.path, one.keyword) for one in done.unenforced] == [("$", "all")]
    assert pod.accepts(done, '{"a": 1}')
    with pytest.raises(GuidedError, match="ookahead"):  # neither does vLLM
        pod.run("a(?=b)b", "regex")


def test_a_text_that_a_walk_finds_invalid_is_no_refusal(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict:
        """Finds every text invalid, for as long as the schema has a pattern."""

        def __init__(self, spec: str) -> None:
            self._finds = "pattern" in spec
            self._judge = Judge(spec)

        def violation(self, text: bytes) -> str | None:
            return "$.properties.a.pattern" if self._finds else self._judge.violation(text)

    monkeypatch.setattr(proof, "Judge", Strict)
    schema = obj(a={**STRING, "pattern": "^ab?$"})
    with pytest.raises(GuidedError, match="does not enforce"):
        pod.run(schema, allows=False)
    assert [one.path for one in pod.run(schema).unenforced] == ["$.properties.a.pattern"]

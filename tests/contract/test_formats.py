"""Formats that we write as patterns: what the RFCs' own readers take is generated, and nothing else."""

import json
import random
import re
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from support.compositions.libraries import Compilers, Grammar

CHECKER = jsonschema.FormatChecker()
# RFC 3986 1.1.2 and 5.4, RFC 3987 3.2, RFC 6570 1.2; and what is near to these, and is none.
REFERENCES = ["ftp://ftp.is.co.za/rfc/rfc1808.txt", "mailto:a@b.c", "news:comp.x", "tel:+1-816", "urn:a:b:c"]
RELATIVE = [
    *("g:h", "g", "./g", "g/", "/g", "//g", "?y", "g?y#s", ";x", "", ".", "../..", "#s", "//g:80/%20")
]
NO_REFERENCES = [*("//[::g]", "\\\\a", "a b", "%zz", "http://a/<b>", "a^", "a:b c", "`", "//a:x", "#a#b")]
EXPRESSIONS = ["", "^[a-z]+$", ".*\\.json$", "[^/]+", "^\\d+-[0-9]*$", "a?b", "^v[0-9]+\\.[0-9_-]+$"]
NO_EXPRESSIONS = [
    *("(", ")", "[", "]", "{", "}", "\\", "*", "^*", "a**", "a++", "(?=a)*", "a{1", "a{,3}", "a{3,2}"),
    *("[z-a]", "[a-\\d]", "[]", "\\1", "\\c", "\\q", "(?<n>a)", "(?P<n>a)", "(?i)a"),
]
TAKEN = {
    "uri-reference": [*REFERENCES, *RELATIVE],
    "iri": REFERENCES,
    "iri-reference": RELATIVE,
    "idn-email": ["a@b.example"],
    "hostname": ["a-1.example", "a", "A.b.c.d.e.f", "a-b--c.d-e", ".".join(["a" * 41] * 6)],
    "idn-hostname": ["a-1.example"],
    "regex": EXPRESSIONS,
    "uri-template": ["", "/{a}/b", "{+path:6}/here", "?{x,y*}", "{#a.b}", "X{?a,b}{&c}", "%20{;v}", "it's"],
}
NOT_TAKEN = {
    "uri-reference": [*NO_REFERENCES, "é"],
    "iri": [*NO_REFERENCES, "/é", "é", "a:\ue000"],
    "iri-reference": [*NO_REFERENCES, "\ue000"],
    "idn-email": ["a", "@b"],
    "hostname": [
        *("", ".", "a.", "a-", "-a", "a..b", "a_b", "xn--a", "ab--c.d"),
        "a" * 64,
        "b." + "a" * 64,
        "é",
    ],
    "idn-hostname": ["-a.example", "a b"],
    "regex": NO_EXPRESSIONS,
    "uri-template": ["{", "{a", "}", "{}", "{a:0}", "{a:12345}", "a b", "{?a,}", '"', "<", "{a b}", "{a*:3}"],
}
WALKS = 20


def _grammar(compilers: Compilers, name: str, **beside: Any) -> Grammar:
    return compilers.compiled({"type": "string", "format": name, **beside}, "guidance")


@pytest.mark.parametrize("name", TAKEN)
def test_examples_of_the_rfc_may_be_generated_and_what_is_near_to_them_not(
    compilers: Compilers, name: str
) -> None:
    grammar = _grammar(compilers, name)
    assert [one for one in TAKEN[name] if not grammar.accepts(json.dumps(one, ensure_ascii=False))] == []
    assert [one for one in NOT_TAKEN[name] if grammar.accepts(json.dumps(one, ensure_ascii=False))] == []


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_generated_is_what_the_reader_of_the_rfc_takes(compilers: Compilers, name: str) -> None:
    judged = name.replace("iri", "uri")
    assert judged in CHECKER.checkers, "the library that reads it is installed"
    grammar = _grammar(compilers, name, maxLength=24)
    texts = {grammar.walked(random.Random(f"{name} {seed}")) for seed in range(WALKS)} - {None}
    assert len(texts) > WALKS / 4
    for text in filter(None, texts):
        value = json.loads(text)
        if judged != name:  # the URI of an IRI: RFC 3987, 3.1
            value = re.sub(r"[^\0-\x7f]+", lambda found: quote(found[0]), value)
        assert CHECKER.conforms(value, judged), f"{name}: {value!r}"

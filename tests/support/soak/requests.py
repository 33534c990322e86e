"""Drawn requests: constraint, sampling, length, and when the client loses patience."""

import json
import random
from typing import Any, Literal

import msgspec
from devtools.tinytasks import TASKS, TOPICS

from support.client_types import pydantic_types

Backend = Literal["xgrammar", "guidance"]
BACKENDS: tuple[Backend, ...] = ("xgrammar", "guidance")
Kind = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag", "none"]
MAX_TOKENS = 64
_IN_BOTH = {"json", "regex", "choice"}  # kinds that both libraries read
# Types as applications write them, but for a bound that takes xgrammar seconds to minutes to judge by.
_TYPES = [one for name, one in pydantic_types.TYPES.items() if "2000" not in name]
_SCHEMAS = [pydantic_types.adapter(one).json_schema() for one in _TYPES]
PART = {"type": "object", "properties": {"a": {"enum": [1, "b"]}}, "additionalProperties": False}
# vLLM's older form: text in which a begin forces an object and an end.
_TAG = json.dumps({"structures": [{"begin": "<f>", "schema": PART, "end": "</f>"}], "triggers": ["<f"]})
# The same texts as a regular expression, by which Python's `re` judges them, and in EBNF.
_TEXTS = (
    (r"[a-z ]+", "[a-z ]+"),
    (r"(foo|bar|ab){2,12}-[0-9]{3,20}", '("foo" | "bar" | "ab"){2,12} "-" [0-9]{3,20}'),
    (r"GET (\/[a-zA-Z0-9_]{1,8}){0,3}", '"GET " ("/" [a-zA-Z0-9_]{1,8}){0,3}'),
    (r"\+49 ([0-9]{2,} ?)+", '"+49 " ([0-9]{2,} " "?)+'),
    (r"[^,;]{5,130}", "[^,;]{5,130}"),
    (r"ß[à-ü]*→?", '"ß" [à-ü]* "→"?'),
    (r"(\$1\.00|x\/y|\(){1,4}", '("$1.00" | "x/y" | "("){1,4}'),
    (r"([0-9a-f]{2}:)*[0-9a-f]{2}", '([0-9a-f]{2} ":")* [0-9a-f]{2}'),
    (r"\\[ -~]{0,100}", r'"\\" [ -~]{0,100}'),
    (r"(a|ab)(c|bcd)*[^a-z\n]", r'("a" | "ab") ("c" | "bcd")* [^a-z\n]'),
)
_EBNF = 'root ::= first | second\nfirst ::= %s\nsecond ::= "#" first'
_LARK = 'start: first | "#" first\nfirst: /%s/'
# One may begin another, not all are ASCII, some have to be escaped.
_OPTIONS = ("yes", "yes, but", "no", "A longer option, with words.", 'q"', "a\nb", "\t", "ünï", "→", "\\")
_LEARNED = [task.prompt(topic) for task in TASKS for topic in TOPICS[:3]]
_PROMPTS = [*_LEARNED, "Give me river stone 7\n", "x", "a b a b\n"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    number: int = 0
    prompt: str
    kind: Kind
    constraint: Any = None  # the value in `structured_outputs`
    regex: str | None = None  # of the same texts, for kinds that can be judged by one
    sampling: dict[str, Any]  # the other fields of the body
    backend: Backend | None = None  # the library that it asks for
    abort_after_s: float | None = None  # when the client closes the connection

    def body(self) -> dict[str, Any]:
        """Return the body of POST /v1/completions."""
        guided = {} if self.kind == "none" else {"structured_outputs": {self.kind: self.constraint}}
        body = {"model": "tiny", "prompt": self.prompt, "return_token_ids": True, **self.sampling, **guided}
        if self.backend:
            body["vllm_xargs"] = {"guided_backend": self.backend}
        if body.get("stream"):
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def spec(self) -> str:
        """The constraint as text, as both grammar libraries read it."""
        return self.constraint if isinstance(self.constraint, str) else json.dumps(self.constraint)


def drawn(seed: int, count: int) -> list[Request]:
    """Return the first requests of a seed."""
    chance = random.Random(seed)
    return [_request(number, chance) for number in range(count)]


def _request(number: int, chance: random.Random) -> Request:
    kind, constraint, regex = _constraint(chance)
    return Request(
        number=number,
        prompt=chance.choice(_PROMPTS),
        kind=kind,
        constraint=constraint,
        regex=regex,
        sampling=_sampling(chance, is_guided=kind != "none"),
        backend=chance.choice([None, None, *BACKENDS]) if kind in _IN_BOTH else None,
        abort_after_s=chance.uniform(0.02, 3) if chance.random() < 0.08 else None,
    )


def _constraint(chance: random.Random) -> tuple[Kind, Any, str | None]:
    """Draw a kind, its constraint, and the regular expression of the same texts if there is one."""
    regex, ebnf = chance.choice(_TEXTS)
    ways: list[tuple[int, Kind, Any, str | None]] = [
        (12, "json", chance.choice(_SCHEMAS), None),
        (4, "regex", regex, regex),
        (2, "grammar", _EBNF % ebnf, f"#?({regex})"),
        (1, "grammar", _LARK % regex, f"#?({regex})"),
        (2, "choice", chance.sample(_OPTIONS, chance.randint(1, len(_OPTIONS))), None),
        (1, "json_object", True, None),
        (1, "structural_tag", _TAG, None),
        (4, "none", None, None),
    ]
    [(_, *way)] = chance.choices(ways, [often for often, *_ in ways])
    kind, constraint, text = way
    return kind, constraint, text


def _sampling(chance: random.Random, *, is_guided: bool) -> dict[str, Any]:
    short = chance.random() < 0.17
    sampling: dict[str, Any] = {
        "max_tokens": chance.randint(1, 8) if short else chance.randint(16, MAX_TOKENS),
        "temperature": chance.choice([0, 1, 1, 0.7]),
    }
    if sampling["temperature"]:
        sampling["seed"] = chance.randint(0, 2**31)
        sampling |= chance.choice([*[{}] * 4, {"top_p": 0.9}, {"top_k": 20}, {"n": 2}, {"n": 2}])
    odd: list[dict[str, Any]] = [
        {"frequency_penalty": 0.5, "presence_penalty": 0.5},
        {"repetition_penalty": 1.3},
        {"stop": ["and", '"name"']},
        {"stop": ["0"], "include_stop_str_in_output": True},
        {"min_tokens": min(4, sampling["max_tokens"])},
        {"logprobs": 3},
        *([] if is_guided else [{"ignore_eos": True}]),
    ]
    return sampling | chance.choice([*[{}] * 14, *odd]) | chance.choice([*[{}] * 3, {"stream": True}])

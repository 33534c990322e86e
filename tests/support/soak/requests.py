"""Strategies of requests: constraint, sampling, length, and when the client loses patience.

`drawn(seed, count)` is the same list wherever it is drawn with the same version of hypothesis.
"""

import itertools
import json
import random
from typing import Any, Literal

import msgspec
from devtools.tinytasks import TASKS, TOPICS
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from support.soak import texts
from support.soak.schemas import Usual

Kind = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag", "none"]
MAX_TOKENS = 64
_CHUNK = 10
_CHUNKS_PER_SEED = 1000
_LEARNED = [task.prompt(topic) for task in TASKS for topic in TOPICS[:3]]
_PROMPTS = [*_LEARNED, "Give me river stone 7\n", "x", "a b a b\n"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes
    ----------
    constraint
        The value in `structured_outputs`; None where there is none.
    regex
        The same texts as a regular expression, for kinds that can be judged by one.
    sampling
        The other fields of the body.
    abort_after_s
        When the client closes the connection, None: never.
    """

    number: int = 0
    prompt: str
    kind: Kind
    constraint: Any = None
    regex: str | None = None
    sampling: dict[str, Any]
    abort_after_s: float | None = None

    def body(self) -> dict[str, Any]:
        """Return the body of POST /v1/completions."""
        guided = {} if self.kind == "none" else {"structured_outputs": {self.kind: self.constraint}}
        body = {"model": "tiny", "prompt": self.prompt, "return_token_ids": True, **self.sampling, **guided}
        if body.get("stream"):
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def spec(self) -> str:
        """The constraint as text, as both grammar libraries read it."""
        return self.constraint if isinstance(self.constraint, str) else json.dumps(self.constraint)


def drawn(number: int, count: int) -> list[Request]:
    """Return the requests of one seed."""
    chunks = (_chunk(number * _CHUNKS_PER_SEED + chunk) for chunk in range(-(-count // _CHUNK)))
    found = itertools.islice(itertools.chain.from_iterable(chunks), count)
    return [msgspec.structs.replace(request, number=index) for index, request in enumerate(found)]


def _chunk(number: int) -> list[Request]:
    """Return hypothesis' first random example; the one before is the simplest, later ones are mutations."""
    found: list[list[Request]] = []

    @seed(number)
    @settings(
        max_examples=2,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(requests(), min_size=_CHUNK, max_size=_CHUNK))
    def collect(chunk: list[Request]) -> None:
        found.append(chunk)

    collect()
    return found[-1]


@st.composite
def requests(draw: DrawFn) -> Request:
    """Draw one request."""
    kind, constraint, regex = draw(_constraints())
    return Request(
        prompt=draw(st.sampled_from(_PROMPTS)),
        kind=kind,
        constraint=constraint,
        regex=regex,
        sampling=draw(_sampling(is_guided=kind != "none")),
        abort_after_s=draw(weighted((11, st.none()), (1, st.floats(0.02, 3)))),
    )


def weighted(*choices: tuple[int, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Return one of several strategies, each as often as its weight says."""
    spread = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(range(len(spread))).flatmap(spread.__getitem__)


def _drawing() -> SearchStrategy[Usual]:
    return st.integers(0, 2**31).map(lambda number: Usual(random.Random(number)))


def _constraints() -> SearchStrategy[tuple[Kind, Any, str | None]]:
    return weighted(
        (12, _drawing().map(lambda drawing: ("json", drawing.schema(), None))),
        (4, texts.written("regex").map(lambda both: ("regex", both[0], both[1]))),
        (2, texts.written("ebnf").map(lambda both: ("grammar", both[0], both[1]))),
        (1, texts.written("lark").map(lambda both: ("grammar", both[0], both[1]))),
        (2, texts.choices().map(lambda options: ("choice", options, None))),
        (1, st.just(("json_object", True, None))),
        (1, _tags().map(lambda tag: ("structural_tag", tag, None))),
        (4, st.just(("none", None, None))),
    )


def _tags() -> SearchStrategy[str]:
    """Draw a structural tag in vLLM's older form: text in which a begin forces an object and an end."""

    def tag(drawing: Usual) -> str:
        schema = {"type": "object", "properties": {"a": drawing.value(0)}, "required": ["a"]}
        part = {"begin": "<f>", "schema": schema | {"additionalProperties": False}, "end": "</f>"}
        return json.dumps({"structures": [part], "triggers": ["<f"]})

    return _drawing().map(tag)


@st.composite
def _sampling(draw: DrawFn, *, is_guided: bool) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        "max_tokens": draw(weighted((1, st.integers(1, 8)), (5, st.integers(16, MAX_TOKENS)))),
        "temperature": draw(st.sampled_from([0, 1, 1, 0.7])),
    }
    if sampling["temperature"]:
        sampling["seed"] = draw(st.integers(0, 2**31))
        sampling |= draw(
            weighted(
                (4, st.just({})),
                (1, st.just({"top_p": 0.9})),
                (1, st.just({"top_k": 20})),
                (2, st.just({"n": 2})),
            )
        )
    odd: list[dict[str, Any]] = [
        {"frequency_penalty": 0.5, "presence_penalty": 0.5},
        {"repetition_penalty": 1.3},
        {"stop": ["and", '"name"']},
        {"stop": ["0"], "include_stop_str_in_output": True},
        {"min_tokens": min(4, sampling["max_tokens"])},
        {"logprobs": 3},
        *([] if is_guided else [{"ignore_eos": True}]),
    ]
    sampling |= draw(weighted((14, st.just({})), *((1, st.just(fields)) for fields in odd)))
    return sampling | draw(weighted((3, st.just({})), (1, st.just({"stream": True}))))

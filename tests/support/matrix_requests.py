"""What the engine matrix asks: guided requests of every kind, and what a request's life can hold."""

import functools
from itertools import pairwise
from typing import Any

import msgspec
from devtools import tinymodel
from devtools.tinytasks import TASKS, TOPICS, task

from guided_contract.wire import Backend

# Tokens (-1 between choices; where logprobs were asked for, a -2 and the likely ones per token), reasons
Answer = tuple[list[int], str | None, int | str | None]
# Prompts come in chunks: longer than max_num_batched_tokens of a cell.
LONG = "river stone light garden window paper winter music " * 21
# Two blocks of a cell's cache, and some more.
SHARED = "music window river paper stone winter garden light " * 9


# What opens reasoning, which then ends at the first token with a comma: support.reasoning_parser.
REASONS = "<|pad|>"


class Request(msgspec.Struct, frozen=True):
    """One request of the corpus; kind "none" is unguided. `params` are sampling parameters."""

    prompt: str
    kind: str
    spec: str
    max_tokens: int
    params: dict[str, Any] = {}

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.spec}"


def token(text: str) -> int:
    """Return the tiny model's token of a word."""
    (one,) = encoded(text)
    return one


def encoded(text: str) -> list[int]:
    """Return the tiny model's tokens of a text."""
    tokens: list[int] = tokenizer().encode(text).ids
    return tokens


@functools.cache
def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tinymodel.models() / "tiny" / "tokenizer.json"))


def choices(tokens: list[int]) -> list[list[int]]:
    """Return the tokens of each choice of an answer."""
    bounds = [-1, *(index for index, one in enumerate(tokens) if one == -1), len(tokens)]
    parts = [tokens[first + 1 : end] for first, end in pairwise(bounds)]
    return [part[: part.index(-2)] if -2 in part else part for part in parts]


def corpus(topic: str = TOPICS[0]) -> list[Request]:
    """Return every task; what a token limit or a grammar without end cuts off; reasoning."""
    strange = "Say anything you like\n"
    return [
        *(Request(task.prompt(topic), task.kind, task.spec, 56) for task in TASKS),
        Request(strange, "regex", r"(foo|bar|baz){2,12}-[0-9]{3,20}", 40),
        Request(strange, "regex", r"[a-z ]+", 7),
        Request(strange, "json", '{"type": "array", "items": {"type": "string", "maxLength": 8}}', 24),
        *reasoning(),
    ]


def unguided() -> Request:
    """Return what the corpus asks without a grammar."""
    [found] = (request for request in corpus() if request.kind == "none")
    return found


def asked(backend: Backend, *, speculates: bool, adapter: bool = False) -> list[Request]:
    """Return what upstream and we are asked alike: each backend another topic, one all settings, too."""
    if backend == "guidance":
        return corpus(TOPICS[5]) + (adapted() if adapter else [])
    return corpus() + (adapted() if adapter else settings() + ([] if speculates else unspeculated()))


# What is chosen of processors, as a request writes it: one that is sparse, and with it one that is dense.
PROCESSED = ("no-repeat", "no-repeat,waves")
_REPEATS = "a b a b a b\n"
THINKING = 3


def processed() -> list[Request]:
    """Return what is asked with a logits processor: guided and not, what repeats itself, what is cut off."""
    return [
        *(_of("story", topic, kind="none", ignore_eos=True) for topic in range(5)),
        Request(_REPEATS, "none", "", 40, {"ignore_eos": True}),
        Request(_REPEATS, TASKS[4].kind, TASKS[4].spec, 40),
        Request(TASKS[2].prompt(TOPICS[0]), TASKS[2].kind, TASKS[2].spec, 34),
    ]


def beside() -> dict[str, tuple[str, Request]]:
    """Return what is asked with processors beside what else changes logits, or tells them."""
    drawn = {"temperature": 1.0, "seed": 7}
    asked: dict[str, dict[str, Any]] = {
        "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.3},
        "top-p": {**drawn, "top_p": 0.6},
        "top-k": {**drawn, "top_k": 3},
        "logprobs": {"logprobs": 2},
    }
    found = {
        name: (PROCESSED[1], Request(_REPEATS, "none", "", 24, {"ignore_eos": True, **params}))
        for name, params in asked.items()
    }
    story = task("story").prompt(TOPICS[0])
    # What stands behind the opening token in the prompt counts, too.
    budget = {"thinking_token_budget": len(encoded(story)) + THINKING}
    colour = task("colour")  # which is not what the model goes on with
    thinks = Request(REASONS + story, colour.kind, colour.spec, 32, budget)
    return found | {"thinking": (PROCESSED[0], thinks)}


def reasoning() -> list[Request]:
    """Return requests whose grammar begins after some tokens, if it does at all."""
    person, card, order, story = task("person"), task("card"), task("order"), task("story")
    colour, query = task("colour"), task("query")
    asked = [
        # What the model goes on with anyway, so that drafts are accepted across the boundary.
        *((REASONS + one.prompt(t), "regex", r"[ -~]+") for one in (person, card) for t in TOPICS[2:4]),
        *((REASONS + story.prompt(t), "regex", r"[a-z ]+\.") for t in TOPICS[:2]),
        # What it does not, so that drafts across the boundary are wrong.
        *((REASONS + card.prompt(t), colour.kind, colour.spec) for t in TOPICS[:2]),
        *((REASONS + order.prompt(t), card.kind, card.spec) for t in TOPICS[:2]),
        # It never ends; it has ended in the prompt.
        (REASONS + query.prompt(TOPICS[0]), colour.kind, colour.spec),
        (REASONS + "," + card.prompt(TOPICS[0]), colour.kind, colour.spec),
    ]
    return [Request(prompt, kind, spec, 48) for prompt, kind, spec in asked]


def _of(name: str, topic: int, before: str = "", kind: str = "", **params: Any) -> Request:
    """Return a task's request with sampling parameters."""
    one = task(name)
    kind = kind or one.kind
    return Request(before + one.prompt(TOPICS[topic]), kind, one.spec if kind != "none" else "", 40, params)


def adapted() -> list[Request]:
    """Return requests of an engine with a LoRA adapter, all with it."""
    names = ("person", "card", "words", "story")
    return [_of(name, topic, adapter=True) for name in names for topic in range(3)]


def settings() -> list[Request]:
    """Return guided requests with sampling parameters that upstream defines, with and without speculation."""
    # As good as greedy, which n > 1 refuses. (No top_k: Triton's interpreter cannot run V2's kernel for it.)
    almost = {"temperature": 0.01}
    return [
        _of("person", 1, stop=["age"]),
        _of("person", 2, stop=['"note":'], include_stop_str_in_output=True),
        # Own stop tokens are the grammar's ends, too: upstream hands them to xgrammar.
        _of("words", 1, stop_token_ids=[token(" light"), token(" stone")]),
        _of("card", 1, min_tokens=12),
        _of("words", 3, presence_penalty=1.5),
        _of("words", 4, frequency_penalty=1.0, repetition_penalty=1.3),
        _of("card", 2, logprobs=2, prompt_logprobs=1),
        _of("person", 5, bad_words=["apples", "office", "White", "Stone"]),
        _of("card", 3, ignore_eos=True),
        _of("person", 6, n=3, **almost),
        _of("words", 5, seed=7, **almost),
        _of("story", 6, kind="none", n=2, stop=["and"], **almost),
        _of("person", 7, LONG),
        *(_of("card", topic, SHARED) for topic in range(3)),
    ]


def unspeculated() -> list[Request]:
    """Return guided requests that vLLM refuses under speculation."""
    bias = {token(" music"): 8.0}
    return [_of("words", 6, logit_bias=bias), _of("card", 4, min_p=0.3, temperature=0.01)]


def overlong() -> list[Request]:
    """Return requests whose grammar ends before they may: no token is left to sample then."""
    return [_of("colour", 0, min_tokens=20, temperature=temperature) for temperature in (0.0, 1.0)]

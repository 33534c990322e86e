"""Which logits processors a request gets, as admission and ranks read it; one odd choice a row."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from guided_contract.choices import MOST_PROCESSORS as MOST
from guided_contract.config import LogitsProcessorConfig, PodConfig
from guided_contract.errors import GuidedError
from guided_engine.admission import request_processors
from guided_engine.processors.choice import ChoiceError, chosen

NO_NAMES = "it must be a list of names"
MANY = f"it has more than {MOST} names"


def processor(name: str, *, enforced: bool = False, by_default: bool = True) -> LogitsProcessorConfig:
    return LogitsProcessorConfig(name=name, factory="a.b:C", apply_by_default=by_default, enforced=enforced)


NONE: list[LogitsProcessorConfig] = []
MODEL = [
    processor("repeat"),
    processor("moderate", enforced=True),
    processor("asked-for", by_default=False),
    processor("watermark", enforced=True),
]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["repeat", "moderate", "watermark"]),
        ("", ["moderate", "watermark"]),
        ([], ["moderate", "watermark"]),
        (" asked-for , repeat\t", ["moderate", "watermark", "asked-for", "repeat"]),
        (["repeat", "asked-for"], ["moderate", "watermark", "repeat", "asked-for"]),
        # To name what is enforced changes nothing, its place neither.
        ("watermark,moderate", ["moderate", "watermark"]),
        ("asked-for,watermark,repeat", ["moderate", "watermark", "asked-for", "repeat"]),
    ],
)
def test_what_the_resource_applies_comes_before_what_the_request_names(choice: Any, names: list[str]) -> None:
    assert chosen(choice, MODEL) == names


HAS = "; this model has repeat, moderate, asked-for, watermark"
REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (5, NO_NAMES),
    "an object": ({"repeat": 1}, NO_NAMES),
    "a list with null": (["repeat", None], NO_NAMES),
    "an empty name": ("repeat,,asked-for", "it has an empty name"),
    "a name twice": ("repeat,asked-for,repeat", 'the name "repeat" twice'),
    "an enforced name twice": ("moderate,moderate", 'the name "moderate" twice'),
    "one too many": (",".join(f"p{number}" for number in range(MOST + 1)), MANY),
    "very many": (["repeat"] * 200_000, MANY),
    "another": ("absent", 'there is no logits processor "absent"'),
    "in capitals": ("Repeat", 'there is no logits processor "Repeat"'),
    "two in one item": (["repeat,asked-for"], 'there is no logits processor "repeat,asked-for"'),
    "half of a pair": ("\ud800", r'there is no logits processor "\ud800"'),
    "a long one": ("x" * 1_000_000, f'there is no logits processor "{"x" * 80}\\u2026"'),
}


@pytest.mark.parametrize(("choice", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_chosen_is_told_with_what_the_model_has(choice: Any, why: str) -> None:
    for model, has in ((MODEL, HAS), (NONE, "; this model has none")):
        with pytest.raises(ChoiceError) as raised:
            chosen(choice, model)
        # Of a model without any, the first name is one that it has not.
        assert why in str(raised.value) or (model == NONE and "no logits processor" in str(raised.value))
        assert str(raised.value).endswith(has)
        assert len(str(raised.value)) < 200


def test_a_configuration_of_a_release_before_enforces_nothing() -> None:
    [read] = msgspec.json.decode(
        b'{"name": "t", "model": "m", "tokenizer": "m", "servedName": "m", "runDir": "/x", '
        b'"logitsProcessors": [{"name": "p", "factory": "a.b:C", "params": {}, "applyByDefault": false}]}',
        type=PodConfig,
    ).logits_processors
    assert not read.enforced
    assert chosen(None, [read]) == chosen("", [read]) == []


OPENAI = ("/v1/completions", "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/responses")
PATHS = {
    **dict.fromkeys((*OPENAI, "/v1/messages", "/invocations"), "vllm_xargs"),
    "/inference/v1/generate": "sampling_params.extra_args",
}


def written(route: str, options: Any, model: Sequence[LogitsProcessorConfig]) -> GuidedError | None:
    try:
        request_processors.chosen(route, options, model)
    except GuidedError as error:
        return error
    return None


SETTABLE = [
    LogitsProcessorConfig(name="marks", factory="support.odd_processors:Marks"),
    LogitsProcessorConfig(name="dry", factory="guided_engine.processors.dry:Dry"),
    LogitsProcessorConfig(name="only", factory="support.odd_processors:Only", apply_by_default=False),
    LogitsProcessorConfig(name="watermark", factory="support.odd_processors:Marks", enforced=True),
]


@pytest.mark.parametrize("route", PATHS)
@pytest.mark.parametrize(
    ("options", "key", "why"),
    [
        ({"marks.mark": "seven"}, "marks.mark", "marks refuses it: Expected `int | null`, got `str`"),
        ({"marks.size": 3}, "marks.size", "of marks a request may set mark"),
        ({"watermark.mark": 3}, "watermark.mark", "of watermark a request may set nothing"),
        ({"absent.size": 3}, "absent.size", "this request has marks, dry, watermark"),
        ({"only.token": 3}, "only.token", 'there is no logits processor "only" for it'),
        ({"logits_processors": "", "marks.mark": 3}, "marks.mark", "this request has watermark"),
        ({"logits_processors": 5}, "logits_processors", NO_NAMES),
        ({"dry.base": 2, "dry.last_n": 0}, "dry.last_n", "dry refuses it: Expected `int` >= 2"),
        ({f"marks.{'x' * 1000}": 3}, f"marks.{'x' * 74}…", "of marks a request may set mark"),
    ],
)
def test_a_parameter_that_cannot_be_set_is_told_where_and_why(
    route: str, options: dict[str, Any], key: str, why: str
) -> None:
    found = written(route, options, SETTABLE)
    assert found is not None
    assert found.path == f"{PATHS[route]}.{key}"
    assert found.code == "request_invalid"
    assert why in found.message


@pytest.mark.parametrize(
    "options",
    [
        {"marks.mark": 7},
        {"logits_processors": None},
        {"logits_processors": "only,marks", "only.token": 3, "marks.mark": 7},
        {"other": 3},
    ],
)
def test_what_a_factory_lets_a_request_set_is_taken(options: dict[str, Any]) -> None:
    assert written("/v1/completions", options, SETTABLE) is None
    without = {key: value for key, value in options.items() if key != "logits_processors"}
    assert written("/v1/completions", without, NONE) is None, "keys with dots are others'"

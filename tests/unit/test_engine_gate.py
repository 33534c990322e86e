"""The gate of an API server: what a request may ask for, and the grammar that a name stands for."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from guided_contract import wire
from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig
from guided_contract.errors import GuidedError
from guided_engine.admission import gate as gate_module
from guided_engine.admission.constraints import Constraint, options_of
from guided_engine.admission.service_client import GrammarClient
from support.admitting import asking, gate_of
from support.engine import pod_config, structured_outputs, wait_until
from support.fake_service import FakeService

Make = Callable[..., gate_module.Gate]


@pytest.fixture
def make(service: FakeService, client: GrammarClient) -> Make:
    """Make a gate of a pod whose configuration differs in some fields."""

    def make(**fields: Any) -> gate_module.Gate:
        pod = msgspec.structs.replace(pod_config(service.path.parent), **fields)
        return gate_of(pod, client)

    return make


@pytest.mark.parametrize(
    ("given", "extra_args", "code"),
    [
        ({"regex": "a" * 2_000_000}, None, "grammar_too_large"),
        ({"regex": "a"}, {"guided_backend": "outlines"}, "grammar_unsupported"),
    ],
)
async def test_refusals_before_a_constraint_is_read_count_under_its_kind(
    make: Make, given: Any, extra_args: Any, code: str
) -> None:
    gate = make()
    with asking("/v1/completions") as exchange, pytest.raises(GuidedError) as raised:
        await gate.admit(structured_outputs(**given), extra_args)
    assert (raised.value.code, exchange.kind) == (code, "regex")


async def test_a_structural_tag_is_waited_for(service: FakeService, make: Make) -> None:
    """What is held back comes in one piece, which vLLM's parsers of tool calls misread."""
    tag = '{"type": "structural_tag", "format": {"type": "any_text"}}'
    service.script[tag] = lambda asked: wire.Prepared(
        id=asked.id, key="k", backend="xgrammar", is_proven=False
    )
    with asking("/v1/chat/completions") as exchange:
        gate = make()
        admitting = asyncio.create_task(gate.admit(structured_outputs(structural_tag=tag), None))
        asked = await asyncio.to_thread(service.wait_for, wire.Prepare)
        await asyncio.to_thread(wait_until, lambda: exchange.grammar_key == "k")
        assert not admitting.done()
        service.peers("api")[0].send(wire.Proven(id=asked.id, backend="xgrammar"))
        assert not (await admitting).is_unproven
        assert exchange.decided


@pytest.mark.parametrize(
    "asked", [(structured_outputs(regex="a"), None), (None, {"guided_grammar": "card"})], ids=["own", "named"]
)
@pytest.mark.parametrize(
    ("route", "path"),
    [("/v1/completions", "ignore_eos"), ("/inference/v1/generate", "sampling_params.ignore_eos")],
)
async def test_a_guided_text_ends_with_its_grammar(make: Make, asked: Any, route: str, path: str) -> None:
    gate = make()
    with asking(route):
        with pytest.raises(GuidedError, match="cannot be combined with a constraint") as raised:
            await gate.admit(*asked, ignores_end=True)
        assert (await gate.admit(None, None, ignores_end=True)).lease is None
    assert raised.value.path == path


@pytest.mark.parametrize("route", ["/v1/completions", None])
async def test_processors_that_a_model_has_not_are_refused_before_its_grammar_is_asked_for(
    service: FakeService, make: Make, route: str | None
) -> None:
    gate = make(logits_processors=[LogitsProcessorConfig(name="repeat", factory="a.b:C")])
    with asking(route) as exchange:
        for choice in ("absent", 5):
            with pytest.raises(GuidedError, match=r"^request_invalid: vllm_xargs.logits_processors: "):
                await gate.admit(structured_outputs(regex="a"), {"logits_processors": choice})
        assert route is None or exchange.failure is not None
        for taken in ("repeat", None):
            assert (await gate.admit(None, {"logits_processors": taken})).lease is None
    assert not service.received(wire.Prepare)


async def test_a_class_as_vllm_has_them_judges_the_requests_that_it_is_for(make: Make) -> None:
    processors = [
        LogitsProcessorConfig(name="target", factory="support.odd_processors:Target"),
        LogitsProcessorConfig(name="other", factory="guided_engine.processors.dry:Dry"),
    ]
    gate = make(logits_processors=processors)
    wrong, right = SimpleNamespace(target=-1), SimpleNamespace(target=7)
    with pytest.raises(GuidedError, match="target refuses the request: a target is a token id") as raised:
        await gate.admit(None, {}, sampling_params=wrong)
    assert (raised.value.code, raised.value.path) == ("request_invalid", "vllm_xargs")
    assert (await gate.admit(None, {}, sampling_params=right)).lease is None
    assert (await gate.admit(None, {"logits_processors": "other"}, sampling_params=wrong)).lease is None


CHOSEN = {
    "guided_backend": "guidance",
    "guided_whitespace": "compact",
    "guided_unsupported_keywords": "allow",
}
OPTIONS: dict[str, Any] = {"backend": "guidance", "whitespace": "Compact", "unsupported_keywords": "Allow"}


def test_a_request_chooses_as_its_model_lets_it() -> None:
    nothing = dict.fromkeys(OPTIONS)
    assert options_of(None, GuidedDecodingConfig()) == nothing
    assert options_of({"other": 1}, GuidedDecodingConfig()) == nothing
    assert options_of(CHOSEN, GuidedDecodingConfig()) == OPTIONS
    options: list[Any] = ["Backend", "Whitespace", "UnsupportedKeywords"]
    for forbidden, (name, value) in zip(options, CHOSEN.items(), strict=True):
        guided = GuidedDecodingConfig(request_options=tuple(one for one in options if one != forbidden))
        with pytest.raises(GuidedError, match="requestOptions") as raised:
            options_of({name: value}, guided)
        assert (raised.value.code, raised.value.path) == ("request_reserved_argument", f"vllm_xargs.{name}")
        assert options_of({key: one for key, one in CHOSEN.items() if key != name}, guided)


@pytest.mark.parametrize(
    ("configured", "name", "value", "offered"),
    [
        ("Auto", "backend", "outlines", "xgrammar or guidance"),
        ("XGrammar", "backend", "guidance", "xgrammar"),
        ("Auto", "whitespace", "Compact", "compact or flexible or "),
        ("Auto", "unsupported_keywords", 1, "allow or "),
    ],
)
def test_what_there_is_not_cannot_be_chosen(configured: Any, name: str, value: Any, offered: str) -> None:
    with pytest.raises(GuidedError, match=f"must be {offered}") as raised:
        options_of({f"guided_{name}": value}, GuidedDecodingConfig(backend=configured))
    assert raised.value.path == f"vllm_xargs.guided_{name}"


async def test_a_name_stands_for_its_text(service: FakeService, make: Make) -> None:
    service.named["card"] = ("json", '{"enum": [1]}')
    service.unenforced["card"] = ["$.not"]
    with asking("/v1/completions") as exchange:
        exchange.written = {"tools": []}
        admitted = await make().admit(None, {"guided_grammar": "card", **CHOSEN})
    assert admitted.lease
    assert admitted.lease.constraint == Constraint("json", '{"enum": [1]}', "card", **OPTIONS)
    assert admitted.arguments
    asked = service.wait_for(wire.Prepare)
    assert (asked.name, asked.backend) == ("card", "guidance")
    assert (asked.whitespace, asked.unsupported_keywords) == ("Compact", "Allow")
    assert not exchange.written, "the text at fault would be none of the client's"
    assert (exchange.kind, exchange.grammar_key) == ("json", admitted.lease.key)
    assert exchange.unenforced == ["$.not"]


@pytest.mark.parametrize(
    ("given", "name", "code", "words"),
    [
        (None, "cards", "grammar_unknown", "no such grammar"),
        (None, "\ud800", "grammar_invalid", "must be the name"),
        (structured_outputs(regex="a"), "card", "grammar_invalid", "cannot be combined with a schema"),
    ],
)
async def test_a_name_that_says_nothing_is_refused(
    make: Make, given: Any, name: Any, code: str, words: str
) -> None:
    with asking("/v1/completions") as exchange, pytest.raises(GuidedError, match=words) as raised:
        await make().admit(given, {"guided_grammar": name})
    assert raised.value.code == code
    assert exchange.failure is raised.value


def test_outside_our_pods_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GUIDEDMODEL_CONFIG", raising=False)
    gate_module.process_gate.cache_clear()
    assert gate_module.process_gate() is None
    gate_module.process_gate.cache_clear()

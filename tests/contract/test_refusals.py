"""Ways into vLLM on which a constraint would be lost are refused: vLLM's own classes, patched."""

import importlib
import re
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from guided_contract.config import LogitsProcessorConfig, PodConfig
from guided_contract.errors import GuidedError
from guided_engine.compat import api, refusals, serve
from support.admitting import asking, chat, gate_of, responses

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

POD = PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/nowhere")
OPENAI, AUDIO = "vllm.entrypoints.openai", "vllm.entrypoints.speech_to_text"
BEAMS = (
    (f"{OPENAI}.chat_completion.protocol", "ChatCompletionRequest"),
    (f"{OPENAI}.completion.protocol", "CompletionRequest"),
    (f"{AUDIO}.transcription.protocol", "TranscriptionRequest"),
    (f"{AUDIO}.translation.protocol", "TranslationRequest"),
)
PATCHED = (
    *((*one, "to_beam_search_params") for one in BEAMS),
    (f"{OPENAI}.chat_completion.protocol", "ChatCompletionRequest", "to_sampling_params"),
    (f"{OPENAI}.responses.protocol", "ResponsesRequest", "to_sampling_params"),
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}}
GUIDED = {"structured_outputs": {"json": SCHEMA}}
NAMED = {"guided_grammar": "card"}
TAGGED = {
    "structured_outputs": {"structural_tag": '{"type": "structural_tag", "format": {"type": "any_text"}}'}
}


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the changes for one test; other tests see upstream's."""
    for module, name, method in PATCHED:
        owner = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(owner, method, owner.__dict__[method])  # restored afterwards
    for entry in refusals.ENTRIES:
        entry.apply(POD)


def refused() -> Any:
    from guided_engine.compat.api_errors import GuidedRequestError

    return pytest.raises(GuidedRequestError)


def tool(*, strict: bool | None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": strict}}


def beams_of(made: tuple[str, str], **fields: Any) -> Any:
    kind = getattr(importlib.import_module(made[0]), made[1])
    known = {"file": None, "model": "tiny", "messages": [], "prompt": "x", "use_beam_search": True}
    return kind.model_construct(**known | fields)


@pytest.mark.parametrize("made", BEAMS[:2], ids=str)
def test_guided_beam_search(made: tuple[str, str]) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    assert beams_of(made).to_beam_search_params(9, {}).beam_width == 1
    with refused() as refusal:
        beams_of(made, structured_outputs=StructuredOutputsParams(json=SCHEMA)).to_beam_search_params(9, {})
    assert refusal.value.error.code == "request_not_admitted"
    with refused():
        beams_of(made, vllm_xargs=NAMED).to_beam_search_params(9, {})


ASKED_FOR = LogitsProcessorConfig(name="asked-for", factory="a.b:C", apply_by_default=False)
BY_DEFAULT = LogitsProcessorConfig(name="default", factory="a.b:C")
ENFORCED = LogitsProcessorConfig(name="always", factory="a.b:C", enforced=True)


@pytest.mark.parametrize("made", BEAMS[:3], ids=str)
@pytest.mark.parametrize(
    ("processors", "choice", "told"),
    [
        ([], None, None),
        ([], "", None),
        ([ASKED_FOR], None, None),
        ([ASKED_FOR], "asked-for", "request_not_admitted: .* would get asked-for$"),
        ([ASKED_FOR, ENFORCED], None, "request_not_admitted: .* would get always$"),
        ([ASKED_FOR, ENFORCED], "asked-for", "request_not_admitted: .* would get always, asked-for$"),
        # The choice is lost on the way to the engine, which would apply the default.
        ([BY_DEFAULT], "", "request_not_admitted: .* would get default$"),
        ([ASKED_FOR], "absent", "request_invalid: vllm_xargs.logits_processors: .*this model has asked-for$"),
        ([ASKED_FOR], 5, "request_invalid: .*must be a list of names"),
    ],
)
def test_beam_search_with_processors(
    made: tuple[str, str], processors: list[LogitsProcessorConfig], choice: Any, told: str | None
) -> None:
    """Each token of a beam is a request of its own to vLLM."""
    refusals.ENTRIES[0].apply(msgspec.structs.replace(POD, logits_processors=processors))
    request = beams_of(made, vllm_xargs=None if choice is None else {"logits_processors": choice})
    if told is None:
        assert request.to_beam_search_params(9, {}).beam_width == 1
        return
    with refused() as refusal:
        request.to_beam_search_params(9, {})
    assert re.match(told, str(refusal.value.error))


@pytest.mark.parametrize(
    ("fields", "refuses"),
    [
        # As a tool parser without structural tags leaves the request: no constraint on a strict tool.
        ({"tools": [tool(strict=True)]}, True),
        ({"tools": [tool(strict=None), tool(strict=True)], **GUIDED}, True),
        ({"tools": [tool(strict=True)], "tool_choice": "none"}, False),
        ({"tools": [tool(strict=None)]}, False),
        ({"tools": [tool(strict=False)]}, False),
        ({}, False),
        (GUIDED, False),
        # As one with structural tags leaves it; and a forced call, constrained by the tools' schema.
        ({"tools": [tool(strict=True)], **TAGGED}, False),
        ({"tools": [tool(strict=True)], "tool_choice": "required", **GUIDED}, False),
        # As a parser leaves it that neither has structural tags nor reads JSON: the call is not forced.
        ({"tools": [tool(strict=None)], "tool_choice": "required"}, True),
        (
            {"tools": [tool(strict=None)], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            True,
        ),
    ],
)
def test_tools_without_a_constraint(fields: dict[str, Any], *, refuses: bool) -> None:
    request = chat(**fields)
    if not refuses:
        assert request.to_sampling_params(9, {}).max_tokens == 9
        return
    with refused() as refusal:
        request.to_sampling_params(9, {})
    assert refusal.value.error.code == "grammar_unsupported"
    assert refusal.value.error.path == ("tool_choice" if "tool_choice" in fields else "tools")


@pytest.mark.parametrize(
    ("strict", "mode", "path"),
    [(True, None, "tools"), (None, "required", "tool_choice"), (None, "auto", "")],
)
def test_tools_of_responses_without_a_constraint(*, strict: bool | None, mode: str | None, path: str) -> None:
    """vLLM reads `allowed_tools`, and constrains nothing."""
    choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "f"}]}
    asked = {"tool_choice": choice} if mode else {}
    function = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": strict}
    request = responses(tools=[function], **asked)
    if not path:
        assert request.to_sampling_params(9, {}).max_tokens == 9
        return
    with refused() as refusal:
        request.to_sampling_params(9, {})
    assert refusal.value.error.path == path


def test_the_engines_owner_may_turn_strict_tools_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENFORCE_STRICT_TOOL_CALLING", "0")
    assert chat(tools=[tool(strict=True)]).to_sampling_params(9, {}).max_tokens == 9


@pytest.mark.parametrize("what", ["gRPC", "Rust"])
def test_front_ends_past_admission_do_not_start(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1" if what == "Rust" else "0")
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # as vLLM sets it; restored afterwards
    monkeypatch.setattr("sys.argv", ["serve", *(["--grpc"] if what == "gRPC" else [])])
    with pytest.raises(SystemExit, match="neither is served"):
        serve.main()


@pytest.mark.parametrize("task", ["transcription", "translation"])
async def test_audio_takes_no_constraint_and_no_name(task: str) -> None:
    """No audio model is at hand, so vLLM's own request, and the gate that its parameters pass."""
    module = importlib.import_module(f"vllm.entrypoints.speech_to_text.{task}.protocol")
    request = getattr(module, f"{task.title()}Request")
    assert "structured_outputs" not in request.model_fields
    assert "response_format" in request.model_fields, "json, text, ...: of the answer, not of the text"
    made = request.model_construct(file=None, model="tiny", vllm_xargs=NAMED)
    params = made.to_sampling_params(9, {})
    assert params.structured_outputs is None
    with asking(f"/v1/audio/{task}s"), pytest.raises(GuidedError) as refusal:
        await gate_of(POD).admit(params.structured_outputs, params.extra_args)
    assert refusal.value.code == "request_not_admitted"


async def test_streaming_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """What later parts ask for is refused where it arrives: tests/contract/test_core_detached.py."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    gate = gate_of(POD)
    monkeypatch.setattr(api, "process_gate", lambda: gate)
    added = []

    async def inner(_self: Any, _id: str, prompt: Any, _params: Any) -> Any:
        added.append(prompt)
        return SimpleNamespace()

    async def parts() -> AsyncGenerator[Any]:
        yield None

    class Engine:
        """Stands for AsyncLLM, which needs an engine core; all that matters here is what comes before it."""

        add_request = api._admitting(inner)

    stream = parts()
    await Engine().add_request("1", stream, SamplingParams(output_kind=RequestOutputKind.DELTA))
    constraint = StructuredOutputsParams(json=SCHEMA)
    for guided in (SamplingParams(structured_outputs=constraint), SamplingParams(extra_args=NAMED)):
        with refused() as refusal:
            await Engine().add_request("1", stream, guided)
        assert refusal.value.error.code == "request_not_admitted"
        assert "streaming input" in str(refusal.value)
    assert added == [stream]

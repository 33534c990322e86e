"""Ways into vLLM on which a constraint would be dropped in silence: there it is refused, with a sentence."""

import functools
import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.names import GRAMMAR_ARG
from guided_contract.wire import Kind
from guided_engine.admission import request_body, request_processors, request_words
from guided_engine.admission.constraints import asks_for_grammar, kind_of
from guided_engine.admission.exchange import current
from guided_engine.compat.tool_markers import cut_calls
from guided_engine.compat.tools import is_forced
from guided_engine.ledger import LedgerEntry, skip_unless_rank
from guided_engine.ranks.tickets import ticket_of

Refusal = Callable[[Any], GuidedError | None]


def _refuse(error: GuidedError, kind: Kind | None = None) -> NoReturn:
    from guided_engine.compat.api_errors import refuse  # noqa: PLC0415 - imports vLLM

    refuse(error, kind)


def _checked(make_params: Callable[..., Any], refusal: Refusal) -> Callable[..., Any]:
    """Wrap a request's `to_..._params`, which vLLM calls once the tool parser has changed the request."""

    @functools.wraps(make_params)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = refusal(self)
        if error is not None:
            _refuse(error, kind_of(self.extract_structured_outputs()) or "structural_tag")
        return make_params(self, *args, **kwargs)

    return checked


def _apply_beam_search(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: PLC0415 - as above
    from vllm.entrypoints.speech_to_text.transcription.protocol import (  # noqa: PLC0415 - as above
        TranscriptionRequest,
    )
    from vllm.entrypoints.speech_to_text.translation.protocol import (  # noqa: PLC0415 - as above
        TranslationRequest,
    )

    for request in (ChatCompletionRequest, CompletionRequest):
        request.to_beam_search_params = _checked(request.to_beam_search_params, _guided_beams)
    for request in (ChatCompletionRequest, CompletionRequest, TranscriptionRequest, TranslationRequest):
        request.to_beam_search_params = _unprocessed(request.to_beam_search_params, config)


def _unprocessed(make_params: Callable[..., Any], config: PodConfig) -> Callable[..., Any]:
    @functools.wraps(make_params)
    def unprocessed(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = _processed_beams(self, config)
        if error is not None:
            _refuse(error)
        return make_params(self, *args, **kwargs)

    return unprocessed


def _processed_beams(request: Any, config: PodConfig) -> GuidedError | None:
    """Return why a search would not be as its processors want it; None: it has none.

    Each token of a beam is a request of its own to the engine, with the defaults whatever this one chooses:
    a processor's state would begin anew with each.
    """
    given = (request.vllm_xargs, None)
    try:
        asked = [request_processors.chosen("", args, config.logits_processors) for args in given]
    except GuidedError as error:
        return error
    names = dict.fromkeys(name for each in asked for name in each)
    if not names:
        return None
    message = (
        f"logits processors are not supported with beam search; this request would get {', '.join(names)}"
    )
    return GuidedError(ErrorCode.REQUEST_NOT_ADMITTED, message, path="use_beam_search")


def _guided_beams(request: Any) -> GuidedError | None:
    named = GRAMMAR_ARG in (request.vllm_xargs or {})
    if not named and request.extract_structured_outputs() is None and _loose_tools(request) is None:
        return None
    return GuidedError(ErrorCode.REQUEST_NOT_ADMITTED, "guided decoding is not supported with beam search")


def _apply_strict_tools(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415 - as above

    for request in (ChatCompletionRequest, ResponsesRequest):
        request.to_sampling_params = _checked(request.to_sampling_params, _unsound_tools)


def _unsound_tools(request: Any) -> GuidedError | None:
    """Return why calls would go unconstrained, or be cut; None: they would not."""
    loose = _loose_tools(request)
    constraint = request.extract_structured_outputs() if loose is None and request.tools else None
    if constraint is None or not constraint.structural_tag:
        return loose
    return cut_calls(request.tools, constraint.structural_tag)


def _loose_tools(request: Any) -> GuidedError | None:
    """Return why strict tools or a forced call would go unconstrained; None: none would."""
    from vllm import envs  # noqa: PLC0415 - see compat/__init__.py
    from vllm.tool_parsers.structural_tag_registry import _any_tool_strict  # noqa: PLC0415 - as above

    tools = getattr(request, "tools", None)
    if not tools or request.tool_choice == "none" or not envs.VLLM_ENFORCE_STRICT_TOOL_CALLING:
        return None  # the last: the engine's owner said so
    forced = is_forced(request.tool_choice)
    if not forced and not _any_tool_strict(tools):
        return None
    constraint = request.extract_structured_outputs()
    # A forced call is constrained by a JSON schema where the parser has no structural tag.
    ours = getattr(request, "_grammar_from_parser", False)
    if constraint is not None and (forced or ours or constraint.structural_tag):
        return None
    if forced:
        message = (
            "a call of some of the tools cannot be forced: send those alone, with tool_choice required"
            if hasattr(request.tool_choice, "mode")
            else "this engine's tool parser cannot force a call: set tool_choice to auto"
        )
        return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path="tool_choice")
    message = (
        "with tool_choice null nobody reads calls: leave it out"
        if request.tool_choice is None
        else "this engine's tool parser does not support strict tools: send them without strict"
    )
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path="tools")


def _apply_other_words(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )

    ChatCompletionRequest.to_sampling_params = _checked(
        ChatCompletionRequest.to_sampling_params, _ignored_words
    )


def _ignored_words(request: Any) -> GuidedError | None:
    """Return what a line of a batch file asks for in vain; HTTP requests have been looked at before."""
    if current.get() is not None:
        return None
    extra = request_body.keys_of(json.dumps(request.model_extra or {}, default=str).encode())
    found = request_words.fault("/v1/chat/completions", extra or {})
    return None if found is None else found.error


def _apply_streaming_input(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - see compat/__init__.py

    validate = AsyncLLM._validate_streaming_input_sampling_params  # noqa: SLF001 - what this module is for

    @functools.wraps(validate)
    def unguided(params: Any) -> None:
        validate(params)
        if asks_for_grammar(params):
            _refuse(
                GuidedError(
                    ErrorCode.REQUEST_NOT_ADMITTED, "guided decoding is not supported for streaming input"
                )
            )

    # Called for the request's parameters and for those of each chunk, which admission never sees.
    AsyncLLM._validate_streaming_input_sampling_params = staticmethod(unguided)  # noqa: SLF001 - as above


def _apply_offline(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415 - see compat/__init__.py

    add_request = LLMEngine.add_request

    @functools.wraps(add_request)
    def refusing(self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        for given in (params, getattr(prompt, "sampling_params", None)):
            if asks_for_grammar(given) and ticket_of(getattr(given, "extra_args", None)) is None:
                message = (
                    "the offline LLM class does not support guided requests inside a GuidedModel "
                    "pod: use its API server, or unset GUIDEDMODEL_CONFIG"
                )
                _refuse(GuidedError(ErrorCode.REQUEST_NOT_ADMITTED, message))
        return add_request(self, request_id, prompt, params, *args, **kwargs)

    LLMEngine.add_request = refusing


ENTRIES: Final = (
    LedgerEntry(
        name="beam-search",
        why="online beam search drops constraint and choice of processors in silence; with any it is refused",
        goes_when="online beam search honours structured_outputs and vllm_xargs, or refuses them",
        apply=_apply_beam_search,
    ),
    LedgerEntry(
        name="strict-tools",
        why="a parser without structural tags leaves strict tools unconstrained, with a line in the log; one "
        "with them cuts a call that holds its own mark",
        goes_when="vLLM refuses strict tools that it cannot constrain, and calls that it could not read",
        apply=_apply_strict_tools,
    ),
    LedgerEntry(
        name="other-words",
        why="run-batch ignores guided_json and its like, of which the middleware sees nothing",
        upstream="https://github.com/vllm-project/vllm/issues/53975",
        goes_when="vLLM refuses the keys that it has removed",
        apply=_apply_other_words,
    ),
    LedgerEntry(
        name="streaming-input",
        why="parameters of later chunks reach the engine core without passing admission",
        goes_when="each chunk passes AsyncLLM.add_request",
        apply=_apply_streaming_input,
    ),
    LedgerEntry(
        name="offline",
        why="offline LLM has no admission: its guided requests would end as errors without a word",
        goes_when="offline LLM is worth an admission of its own",
        apply=_apply_offline,
    ),
)

"""Ways into vLLM on which a constraint would be dropped in silence: there it is refused, with a sentence."""

import functools
from collections.abc import Callable
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.names import GRAMMAR_ARG
from guided_engine.admission import request_processors
from guided_engine.admission.constraints import kind_of
from guided_engine.compat.tools import is_forced, may_answer_instead
from guided_engine.ledger import LedgerEntry


def _apply(config: PodConfig) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: PLC0415 - as above
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415 - as above
    from vllm.entrypoints.speech_to_text.transcription.protocol import (  # noqa: PLC0415 - as above
        TranscriptionRequest,
    )
    from vllm.entrypoints.speech_to_text.translation.protocol import (  # noqa: PLC0415 - as above
        TranslationRequest,
    )

    beams = functools.partial(_beams, config=config)
    for request in (ChatCompletionRequest, CompletionRequest, TranscriptionRequest, TranslationRequest):
        request.to_beam_search_params = _checked(request.to_beam_search_params, beams)
    for request in (ChatCompletionRequest, ResponsesRequest):
        request.to_sampling_params = _checked(request.to_sampling_params, _loose_tools)


def _checked(
    make_params: Callable[..., Any], refusal: Callable[[Any], GuidedError | None]
) -> Callable[..., Any]:
    """Wrap a request's `to_..._params`, which vLLM calls once the tool parser has changed the request."""

    @functools.wraps(make_params)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = refusal(self)
        if error is not None:
            from guided_engine.compat.api_errors import refuse  # noqa: PLC0415 - imports vLLM

            kind = kind_of(_constraint(self))
            refuse(error, "structural_tag" if kind is None and getattr(self, "tools", None) else kind)
        return make_params(self, *args, **kwargs)

    return checked


def _constraint(request: Any) -> Any:
    """Return a request's constraint; those of audio have none."""
    extract = getattr(request, "extract_structured_outputs", None)
    return extract() if extract else None


def _beams(request: Any, config: PodConfig) -> GuidedError | None:
    """Return why a beam search would lose a constraint or its logits processors; None: it has neither.

    Each token of a beam is a request of its own to the engine, with the defaults whatever this one chooses.
    """
    asked = request.vllm_xargs
    try:
        of_each = [request_processors.chosen("", args, config.logits_processors) for args in (asked, None)]
    except GuidedError as error:
        return error
    if names := dict.fromkeys(name for each in of_each for name in each):
        message = (
            f"logits processors are not supported with beam search; this request would get {', '.join(names)}"
        )
        return GuidedError(ErrorCode.REQUEST_NOT_ADMITTED, message, path="use_beam_search")
    if GRAMMAR_ARG in (asked or {}) or _constraint(request) is not None or _loose_tools(request) is not None:
        return GuidedError(
            ErrorCode.REQUEST_NOT_ADMITTED, "guided decoding is not supported with beam search"
        )
    return None


def _loose_tools(request: Any) -> GuidedError | None:
    """Return why strict tools or a forced call would go unconstrained; None: none would."""
    from vllm import envs  # noqa: PLC0415 - see compat/__init__.py
    from vllm.tool_parsers.structural_tag_registry import _any_tool_strict  # noqa: PLC0415 - as above

    tools = getattr(request, "tools", None)
    if not tools or request.tool_choice == "none" or not envs.VLLM_ENFORCE_STRICT_TOOL_CALLING:
        return None  # the last: the engine's owner said so
    forced = is_forced(request.tool_choice)
    if may_answer_instead(request):  # the grammar has no calls: those of both have a structural tag
        message = "this engine's tool parser takes no response_format beside tools: leave one of them out"
        return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path="tools")
    if not forced and not _any_tool_strict(tools):
        return None
    constraint = _constraint(request)
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
        "tool_choice null turns tool calls off: leave tool_choice out"
        if request.tool_choice is None
        else "this engine's tool parser does not support strict tools: send them without strict"
    )
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path="tools")


ENTRIES: Final = (
    LedgerEntry(
        name="unread-constraints",
        why="online beam search drops constraint and choice of processors in silence, and a parser without "
        "structural tags leaves strict tools unconstrained, with a line in the log; both are refused",
        upstream="https://github.com/vllm-project/vllm/issues/53975",
        goes_when="beam search honours structured_outputs and vllm_xargs or refuses them, and vLLM refuses "
        "strict tools that it cannot constrain",
        apply=_apply,
    ),
)

"""Ways into vLLM on which a constraint would be dropped in silence: there it is refused, with a sentence."""

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.names import GRAMMAR_ARG
from guided_contract.wire import Kind
from guided_engine.admission import request_processors, request_words
from guided_engine.admission.constraints import kind_of
from guided_engine.admission.exchange import current
from guided_engine.admission.request_body import Body
from guided_engine.compat.tools import is_forced, may_answer_instead
from guided_engine.ledger import LedgerEntry, skip_unless_rank

_MARK: Final = re.compile(r"<[^<>\s]+>")

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


def _apply_unread(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415 - as above

    def unread(request: Any) -> GuidedError | None:
        return _ignored_words(request) or _unsound_tools(request)

    for request, refusal in ((ChatCompletionRequest, unread), (ResponsesRequest, _unsound_tools)):
        request.to_sampling_params = _checked(request.to_sampling_params, refusal)


def _unsound_tools(request: Any) -> GuidedError | None:
    """Return why calls would go unconstrained, or be cut; None: they would not."""
    loose = _loose_tools(request)
    constraint = request.extract_structured_outputs() if loose is None and request.tools else None
    if constraint is None or not constraint.structural_tag:
        return loose
    return cut_calls(request.tools, constraint.structural_tag)


def cut_calls(tools: Sequence[Any], structural_tag: str) -> GuidedError | None:
    """Return why a parser would take what a call holds for its end; None: none is known to."""
    marks = {mark for end in _ends(json.loads(structural_tag)) for mark in _MARK.findall(end)}
    for number, tool in enumerate(tools):
        function = getattr(tool, "function", tool)  # a chat's tool has it inside, a Response's is it
        # Of the others, such as a web search, some have neither.
        held = [getattr(function, name, None) for name in ("name", "parameters")]
        text = json.dumps(held, ensure_ascii=False)
        for mark in filter(text.__contains__, marks):
            message = f"the tool contains {mark}, the end mark of this engine's tool parser: remove it"
            return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"tools[{number}]")
    return None


def _ends(tag: Any) -> Iterator[str]:
    """Yield what ends the tags of a structural tag; schemas are not looked into."""
    if isinstance(tag, dict):
        end = tag.get("end") if tag.get("type") == "tag" else None
        yield from (one for one in (end if isinstance(end, list) else [end]) if isinstance(one, str))
        tag = [inner for key, inner in tag.items() if key != "json_schema"]
    if isinstance(tag, list):
        for inner in tag:
            yield from _ends(inner)


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


def _ignored_words(request: Any) -> GuidedError | None:
    """Return what a line of a batch file asks for in vain; HTTP requests have been looked at before."""
    if current.get() is not None or not request.model_extra:
        return None
    extra = Body.read(json.dumps(request.model_extra, default=str).encode())
    return None if extra is None else request_words.first("/v1/chat/completions", extra)


ENTRIES: Final = (
    LedgerEntry(
        name="beam-search",
        why="online beam search drops constraint and choice of processors in silence; with any it is refused",
        goes_when="online beam search honours structured_outputs and vllm_xargs, or refuses them",
        apply=_apply_beam_search,
    ),
    LedgerEntry(
        name="unread-constraints",
        why="a parser without structural tags leaves strict tools unconstrained, with a line in the log, and "
        "one with them cuts a call that holds its own mark; run-batch, of which the middleware sees nothing, "
        "ignores guided_json and its like",
        upstream="https://github.com/vllm-project/vllm/issues/53975",
        goes_when="vLLM refuses strict tools that it cannot constrain, calls that it could not read, and the "
        "keys that it has removed",
        apply=_apply_unread,
    ),
)

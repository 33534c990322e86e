"""Admission before the engine; answers held back until their grammar is proven, and how they are read."""

import copy
import functools
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import headers
from guided_engine.admission.constraints import asks_for_grammar
from guided_engine.admission.exchange import current
from guided_engine.admission.gate import Admitted, Gate, process_gate
from guided_engine.compat import minor
from guided_engine.compat.api_ends import ADMITTED, end, error_of
from guided_engine.ledger import LedgerEntry

AddRequest = Callable[..., Awaitable[Any]]
# On a parser: the prompt of its answer.
_PROMPT: Final = "_guided_prompt"


def _apply_admission(_config: PodConfig) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.parser.abstract_parser import DelegatingParser  # noqa: PLC0415 - as above
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - as above

    AsyncLLM.add_request = _admitting(AsyncLLM.add_request)
    # An answer is read as the ranks constrained it.
    chat, parser = ChatCompletionRequest, DelegatingParser
    if minor.here().resolves_reasoning:
        chat.resolve_reasoning_ended = _hiding(chat.resolve_reasoning_ended)
        parser.set_prompt_token_ids = _remembering(parser.set_prompt_token_ids)
    parser.extract_reasoning = _reading(parser.extract_reasoning)


def _admitting(add_request: AddRequest) -> AddRequest:
    from guided_engine.compat.api_errors import GuidedRequestError  # noqa: PLC0415 - imports vLLM

    @functools.wraps(add_request)
    async def admitting(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        gate = process_gate()
        if gate is None or not hasattr(params, "structured_outputs"):  # pooling parameters have no constraint
            return await add_request(self, request_id, prompt, params, *args, **kwargs)
        if isinstance(prompt, AsyncGenerator) and asks_for_grammar(params):
            # Nor one that a later part asks for: a rank ends what comes without a ticket.
            error = GuidedError(
                ErrorCode.REQUEST_NOT_ADMITTED, "guided decoding is not supported for streaming input"
            )
            raise GuidedRequestError(error)
        headers.called(request_id)
        try:
            admitted = await gate.admit(
                params.structured_outputs,
                params.extra_args,
                ignores_end=params.ignore_eos,
                sampling_params=params,
            )
        except GuidedError as error:
            raise GuidedRequestError(error) from error
        gate.client.end = functools.partial(end, self)
        kwargs |= _reasoning(admitted, prompt, kwargs)

        async def add() -> Any:
            return await add_request(self, request_id, prompt, _told(params, admitted), *args, **kwargs)

        try:
            collector = await add()
        except BaseException:
            if self.errored:
                admitted.fail(error_of(ErrorCode.ENGINE_DEAD))
            if admitted.lease is not None:
                admitted.lease.release()
            raise
        _hold(collector, admitted)
        if admitted.is_unproven:
            abort = functools.partial(self.abort, internal=True)
            _Unproven(collector, admitted, gate, abort, add).hold_back()
        return collector

    return admitting


def _reasoning(admitted: Admitted, prompt: Any, said: dict[str, Any]) -> dict[str, bool | None]:
    """Return what the engine is told of reasoning beside what was `said`; note the prompt for the parser."""
    told: dict[str, bool | None] = {**admitted.reasoning(said)}
    if minor.here().resolves_reasoning or admitted.lease is None:
        return told
    tokens = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
    admitted.exchange.prompts.add(tuple(tokens or ()))  # a batch of chats has several
    # vLLM takes what is left out of the answer for over.
    return ({"reasoning_ended": None} if admitted.exchange.hides_reasoning else {}) | told


def _told(params: Any, admitted: Admitted) -> Any:
    """Return sampling parameters with ours for the ranks, in a copy: callers share and reuse theirs."""
    ours = admitted.arguments
    if not ours:
        return params
    told = copy.copy(params)
    if admitted.lease is not None and told.structured_outputs is None:
        # Asked for by name: from here on as if sent with it.
        from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415 - see compat/__init__.py

        named = admitted.lease.constraint
        told.structured_outputs = StructuredOutputsParams(**{named.kind: named.spec})
    if admitted.is_plain:
        told.thinking_token_budget = None  # it would write the end of no thinking into the answer
    told.extra_args = {**(told.extra_args or {}), **ours}
    return told


def _hold(collector: Any, admitted: Admitted) -> None:
    """Tie the lease to the output collector: one per request, also for n > 1, and closed however it ends."""
    setattr(collector, ADMITTED, admitted)
    if admitted.lease is None:
        return
    lease, close, target = admitted.lease, type(collector).close, weakref.proxy(collector)

    def close_and_release() -> None:
        close(target)
        lease.release()

    collector.close = close_and_release


@dataclass(frozen=True, slots=True)
class _Unproven:
    """A request in the engine whose grammar is not proven yet: what it generates, or fails with, waits."""

    collector: Any  # from which vLLM reads
    admitted: Admitted
    gate: Gate
    abort: Callable[[str], Awaitable[None]]  # ends a request in the engine, by its collector's id
    add: Callable[[], Awaitable[Any]]  # adds it to the engine anew

    def hold_back(self) -> None:
        """Have nobody read from the collector before the proof."""
        self.collector.get_nowait = lambda: None
        self.collector.get = self._get

    async def _get(self) -> Any:
        from guided_engine.compat.api_errors import GuidedRequestError  # noqa: PLC0415 - imports vLLM

        begun_as = self.admitted.arguments
        try:
            await self.gate.prove(self.admitted)
        except GuidedError as error:
            await self.abort(self.collector.request_id)
            raise GuidedRequestError(error) from error
        finally:
            del self.collector.get, self.collector.get_nowait  # which lead back here
        if self.admitted.arguments != begun_as:
            await self._begin_anew()
        try:
            return await self.collector.get()
        except GuidedRequestError as failure:  # of a sequence, while nobody could be told
            self.admitted.fail(failure.error)
            raise

    async def _begin_anew(self) -> None:
        """Have it done with the grammar that was proven, which ranks have in the other's place."""
        await self.abort(self.collector.request_id)
        other = await self.add()
        setattr(other, ADMITTED, self.admitted)
        for name in ("request_id", "get", "get_nowait"):  # what vLLM asks a collector for
            setattr(self.collector, name, getattr(other, name))


def _hiding(resolve: Callable[..., bool | None]) -> Callable[..., bool | None]:
    @functools.wraps(resolve)
    def hiding(self: Any, parser: Any, prompt_token_ids: list[int]) -> bool | None:
        """Have reasoning that is left out of the answer end as other reasoning does.

        vLLM takes it for over: its parser finds no end of it, and drops the answer with it.
        """
        return resolve(self.model_copy(update={"include_reasoning": True}), parser, prompt_token_ids)

    return hiding


def _remembering(set_prompt: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(set_prompt)
    def remembering(self: Any, prompt_token_ids: Sequence[int]) -> None:
        set_prompt(self, prompt_token_ids)
        setattr(self, _PROMPT, prompt_token_ids)

    return remembering


def _reading(extract: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(extract)
    def reading(self: Any, model_output: str, request: Any) -> Any:
        """Read an answer whose prompt had ended the reasoning as vLLM does in a stream: all is content."""
        exchange = current.get()
        if exchange is not None and exchange.kind is not None:
            known = [getattr(self, _PROMPT)] if hasattr(self, _PROMPT) else exchange.prompts
            if len(known) == 1 and self.is_reasoning_end([*next(iter(known))]):
                return None, model_output
        return extract(self, model_output, request)

    return reading


ENTRIES: Final = (
    LedgerEntry(
        name="admission",
        why="a grammar is compiled and loaded before the engine sees its request, proven before anybody sees "
        "its answer; a refusal is a 4xx",
        upstream="https://github.com/vllm-project/vllm/issues/54003",
        goes_when="vLLM has an admission hook before AsyncLLM.add_request",
        apply=_apply_admission,
    ),
)

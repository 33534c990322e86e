"""Changes to vLLM's API server: admission before the engine, and sequence failures as errors of ours."""

import asyncio
import functools
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_contract.errors import CATALOGUE, ErrorCode, GuidedError
from guided_engine.admission import identifiers
from guided_engine.admission.constraints import asks_for_grammar
from guided_engine.admission.exchange import SequenceEnd
from guided_engine.admission.gate import Admitted, Gate, process_gate
from guided_engine.compat.api_call import Call
from guided_engine.ledger import LedgerEntry, skip_unless_rank

# Where an admitted request is found again when its output fails: an attribute of its output collector.
_ADMITTED: Final = "_guided_admitted"

AddRequest = Callable[..., Awaitable[Any]]
_CODES: Final = frozenset(ErrorCode)
RETRY_AFTER_S: Final = 1.0  # another replica may take it at once
# The loop holds its tasks weakly.
_aborts: Final[set[asyncio.Task[None]]] = set()


def _apply_admission(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - see compat/__init__.py

    AsyncLLM.add_request = _admitting(AsyncLLM.add_request)


def _admitting(add_request: AddRequest) -> AddRequest:
    from guided_engine.compat.api_errors import GuidedRequestError  # noqa: PLC0415 - imports vLLM

    @functools.wraps(add_request)
    async def admitting(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        call = Call(prompt, params)
        gate = process_gate()
        if gate is None or not call.samples:
            return await add_request(self, request_id, prompt, params, *args, **kwargs)
        if isinstance(prompt, AsyncGenerator) and asks_for_grammar(params):
            # Nor one that a later part asks for: a rank ends what comes without a ticket.
            error = GuidedError(
                ErrorCode.REQUEST_NOT_ADMITTED, "guided decoding is not supported for streaming input"
            )
            raise GuidedRequestError(error)
        identifiers.called(request_id)
        try:
            admitted = await gate.admit(
                call.sampling.structured_outputs,
                call.sampling.extra_args,
                ignores_end=call.sampling.ignore_eos,
                sampling_params=call.sampling,
            )
        except GuidedError as error:
            raise GuidedRequestError(error) from error
        gate.client.serve(self, _end)

        async def add() -> Any:
            told = call.with_arguments(admitted)
            return await add_request(self, request_id, *told, *args, **kwargs)

        try:
            collector = await add()
        except BaseException:
            if self.errored:
                admitted.fail(_of(ErrorCode.ENGINE_DEAD))
            if admitted.lease is not None:
                admitted.lease.release()
            raise
        _hold(collector, admitted)
        if admitted.is_unproven:
            abort = functools.partial(self.abort, internal=True)
            _Unproven(collector, admitted, gate, abort, add).hold_back()
        return collector

    return admitting


def _hold(collector: Any, admitted: Admitted) -> None:
    """Tie the lease to the output collector: one per request, also for n > 1, and closed however it ends."""
    setattr(collector, _ADMITTED, admitted)
    if admitted.lease is None:
        return
    lease, close, target = admitted.lease, type(collector).close, weakref.proxy(collector)

    def close_and_release() -> None:
        close(target)
        lease.release()

    collector.close = close_and_release


@dataclass(frozen=True, slots=True)
class _Unproven:
    """A request in the engine whose grammar is not proven yet: what it generates, or fails with, waits.

    Parameters
    ----------
    collector
        Its own, from which vLLM reads.
    abort
        Ends a request in the engine, by its collector's id.
    add
        Adds it to the engine anew.
    """

    collector: Any
    admitted: Admitted
    gate: Gate
    abort: Callable[[str], Awaitable[None]]
    add: Callable[[], Awaitable[Any]]

    def hold_back(self) -> None:
        """Have nobody read from the collector before the proof."""
        self.collector.get_nowait = lambda: None
        self.collector.get = self._get

    async def _get(self) -> Any:
        from guided_engine.compat.api_errors import GuidedRequestError  # noqa: PLC0415 - imports vLLM

        begun_as = self.admitted.ticket
        try:
            await self.gate.prove(self.admitted)
        except GuidedError as error:
            await self.abort(self.collector.request_id)
            raise GuidedRequestError(error) from error
        finally:
            del self.collector.get, self.collector.get_nowait  # which lead back here
        if self.admitted.ticket != begun_as:
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
        setattr(other, _ADMITTED, self.admitted)
        for name in ("request_id", "get", "get_nowait"):  # what vLLM asks a collector for
            setattr(self.collector, name, getattr(other, name))


def _apply_failures(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - see compat/__init__.py
    from vllm.v1.engine.output_processor import OutputProcessor  # noqa: PLC0415 - see compat/__init__.py

    OutputProcessor.process_outputs = _failing(OutputProcessor.process_outputs)
    OutputProcessor.propagate_error = _dying(OutputProcessor.propagate_error)
    AsyncLLM.shutdown = _leaving(AsyncLLM.shutdown)


def _dying(propagate_error: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(propagate_error)
    def dying(self: Any, error: Exception) -> None:
        for state in self.request_states.values():
            if (admitted := getattr(state.queue, _ADMITTED, None)) is not None:
                admitted.fail(_of(ErrorCode.ENGINE_DEAD))
        propagate_error(self, error)

    return dying


def _leaving(shutdown: Callable[..., None]) -> Callable[..., None]:
    """VLLM ends the engine first; what still waits for it would do so until its connection breaks."""
    from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - see compat/__init__.py

    @functools.wraps(shutdown)
    def leaving(self: Any, *args: Any, **kwargs: Any) -> None:
        shutdown(self, *args, **kwargs)
        reader = getattr(self, "output_handler", None)
        if reader is not None and not (loop := reader.get_loop()).is_closed():
            loop.call_soon_threadsafe(self.output_processor.propagate_error, EngineDeadError())

    return leaving


def _fail(state: Any, error: GuidedError) -> None:
    """Have whoever reads a request's output find an error, and its HTTP exchange answer with it."""
    from guided_engine.compat.api_errors import GuidedRequestError  # noqa: PLC0415 - imports vLLM

    admitted: Admitted | None = getattr(state.queue, _ADMITTED, None)
    if admitted is not None and not admitted.is_unproven:  # what the proof says comes first
        admitted.fail(error)
    state.queue.put(GuidedRequestError(error))


def _note_end(state: Any, output: Any, *, failed: bool) -> None:
    """Note how a sequence ended. vLLM's reason is none where it found a stop string after the engine."""
    admitted: Admitted | None = getattr(state.queue, _ADMITTED, None)
    if admitted is None or state.detokenizer is None:
        return
    reason = "error" if failed else "stop" if output.finish_reason is None else str(output.finish_reason)
    generated = state.detokenizer.num_output_tokens()
    admitted.ends[state.request_index] = SequenceEnd(reason, state.prompt_len, generated)


def _end(llm: Any, message: wire.End) -> None:
    """End a request that is this engine's, with its siblings of n > 1, on the sidecar's word."""
    if message.code not in _CODES:
        return
    state = llm.output_processor.request_states.get(message.request_id)
    if state is None or state.queue is None:
        return
    _fail(state, _of(ErrorCode(message.code)))
    whole = state.request_id if state.parent_req is None else state.parent_req.request_id
    task = asyncio.get_running_loop().create_task(llm.abort(whole, internal=True))
    _aborts.add(task)
    task.add_done_callback(_aborts.discard)


def _of(code: ErrorCode) -> GuidedError:
    return GuidedError(code, retry_after_s=RETRY_AFTER_S if CATALOGUE[code].retryable else None)


def _failing(process_outputs: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.engine import FinishReason  # noqa: PLC0415 - see compat/__init__.py

    def code_of(output: Any) -> ErrorCode | None:
        known = output.finish_reason == FinishReason.ERROR and output.stop_reason in _CODES
        return ErrorCode(output.stop_reason) if known else None

    @functools.wraps(process_outputs)
    def failing(self: Any, engine_core_outputs: list[Any], *args: Any, **kwargs: Any) -> Any:
        failed = []
        states = [self.request_states.get(output.request_id) for output in engine_core_outputs]
        for output, state in zip(engine_core_outputs, states, strict=True):
            code = code_of(output)
            if code is not None and state is not None and state.queue is not None:
                # First: an exception in the collector keeps what upstream makes of the same output out.
                _fail(state, GuidedError(code))
                if state.parent_req is not None:
                    failed.append(state.parent_req.request_id)
        processed = process_outputs(self, engine_core_outputs, *args, **kwargs)
        for output, state in zip(engine_core_outputs, states, strict=True):
            if state is not None and output.request_id not in self.request_states:
                _note_end(state, output, failed=code_of(output) is not None)
        if failed:
            # Siblings of n > 1: nobody reads them any more.
            processed.reqs_to_abort.extend(self.abort_requests(failed, internal=True))
        return processed

    return failing


ENTRIES: Final = (
    LedgerEntry(
        name="admission",
        why="a grammar is compiled and loaded before the engine sees its request, proven before anybody sees "
        "its answer; a refusal is a 4xx",
        upstream="https://github.com/vllm-project/vllm/issues/54003",
        goes_when="vLLM has an admission hook before AsyncLLM.add_request",
        apply=_apply_admission,
    ),
    LedgerEntry(
        name="sequence-failures",
        why="a sequence or an engine that fails ends requests with our error, not with a 500 without a code",
        goes_when="vLLM carries an error code per finished request",
        apply=_apply_failures,
    ),
)

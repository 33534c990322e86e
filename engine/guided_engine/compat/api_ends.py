"""How requests end in vLLM's API server: failures as errors of ours, and what was cut told as cut."""

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from guided_contract import wire
from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.ledger import LedgerEntry

if TYPE_CHECKING:
    from guided_engine.admission.gate import Admitted

# Where an admitted request is found again when its output fails: an attribute of its output collector.
ADMITTED: Final = "_guided_admitted"

_CODES: Final = frozenset(ErrorCode)
RETRY_AFTER_S: Final = 1.0  # another replica may take it at once
_aborts: Final[set[asyncio.Task[None]]] = set()  # the loop holds its tasks weakly


def _apply(_config: PodConfig) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - see compat/__init__.py
    from vllm.v1.engine.output_processor import (  # noqa: PLC0415 - see compat/__init__.py
        OutputProcessor,
        RequestState,
    )

    OutputProcessor.process_outputs = _failing(OutputProcessor.process_outputs)
    OutputProcessor.propagate_error = _dying(OutputProcessor.propagate_error)
    AsyncLLM.shutdown = _leaving(AsyncLLM.shutdown)
    RequestState._new_completion_output = _cutting(RequestState._new_completion_output)  # noqa: SLF001 - the seam


def _cutting(make_output: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.engine import FinishReason  # noqa: PLC0415 - see compat/__init__.py

    @functools.wraps(make_output)
    def cutting(self: Any, token_ids: Any, finish_reason: Any, stop_reason: Any, *args: Any) -> Any:
        """Say of an answer in a chat that a stop string cut: "length"; vLLM would make a call of any rest."""
        admitted: Admitted | None = getattr(self.queue, ADMITTED, None)
        is_cut = finish_reason == FinishReason.STOP and isinstance(stop_reason, str)
        if is_cut and admitted is not None and admitted.is_chat:
            finish_reason = FinishReason.LENGTH
        return make_output(self, token_ids, finish_reason, stop_reason, *args)

    return cutting


def _dying(propagate_error: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(propagate_error)
    def dying(self: Any, error: Exception) -> None:
        for state in self.request_states.values():
            if (admitted := getattr(state.queue, ADMITTED, None)) is not None:
                admitted.fail(error_of(ErrorCode.ENGINE_DEAD))
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

    admitted: Admitted | None = getattr(state.queue, ADMITTED, None)
    if admitted is not None and not admitted.is_unproven:  # what the proof says comes first
        admitted.fail(error)
    state.queue.put(GuidedRequestError(error))


def end(llm: Any, message: wire.End) -> None:
    """End a request that is this engine's, with its siblings of n > 1, on the sidecar's word."""
    state = llm.output_processor.request_states.get(message.request_id)
    if message.code not in _CODES or state is None or state.queue is None:
        return
    _fail(state, error_of(ErrorCode(message.code)))
    whole = state.request_id if state.parent_req is None else state.parent_req.request_id
    task = asyncio.get_running_loop().create_task(llm.abort(whole, internal=True))
    _aborts.add(task)
    task.add_done_callback(_aborts.discard)


def error_of(code: ErrorCode) -> GuidedError:
    """Return the error of a code, with when to try again where that makes sense."""
    return GuidedError(code, retry_after_s=RETRY_AFTER_S if code.retryable else None)


def _failing(process_outputs: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.engine import FinishReason  # noqa: PLC0415 - see compat/__init__.py

    def code_of(output: Any) -> ErrorCode | None:
        known = output.finish_reason == FinishReason.ERROR and output.stop_reason in _CODES
        return ErrorCode(output.stop_reason) if known else None

    @functools.wraps(process_outputs)
    def failing(self: Any, engine_core_outputs: list[Any], *args: Any, **kwargs: Any) -> Any:
        failed = []
        for output in engine_core_outputs:
            code, state = code_of(output), self.request_states.get(output.request_id)
            if code is not None and state is not None and state.queue is not None:
                # First: an exception in the collector keeps what upstream makes of the same output out.
                _fail(state, GuidedError(code))
                if state.parent_req is not None:
                    failed.append(state.parent_req.request_id)
        processed = process_outputs(self, engine_core_outputs, *args, **kwargs)
        if failed:
            # Siblings of n > 1: nobody reads them any more.
            processed.reqs_to_abort.extend(self.abort_requests(failed, internal=True))
        return processed

    return failing


ENTRIES: Final = (
    LedgerEntry(
        name="sequence-failures",
        why="a sequence or an engine that fails ends requests with our error, not with a 500 without a code",
        goes_when="vLLM carries an error code per finished request",
        apply=_apply,
    ),
)

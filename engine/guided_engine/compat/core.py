"""The engine core without grammars: requests detached, sequences ended on a rank's word, signs of life."""

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode
from guided_contract.heartbeat import core_slot
from guided_contract.names import TICKET_ARG
from guided_engine import ledger
from guided_engine.compat import core_drafts, minor
from guided_engine.compat.runner import ENDS_ATTRIBUTE, INVALID_ATTRIBUTE
from guided_engine.ledger import LedgerEntry
from guided_engine.pulse import Pulse
from guided_engine.ranks.tickets import ticket_of
from guided_engine.service_link import ServiceLink


def detach_grammar(_config: PodConfig) -> None:
    """Replace `grammar_init`: an admitted request loses its grammar here, another ends without a token."""
    from vllm.v1.request import RequestStatus  # noqa: PLC0415 - vLLM is imported only where it is changed
    from vllm.v1.structured_output import StructuredOutputManager  # noqa: PLC0415 - see above

    def grammar_init(_manager: Any, request: Any) -> None:
        structured = request.structured_output_request
        if structured is None:
            return
        ticket = ticket_of(request.sampling_params.extra_args)
        if ticket is not None:
            _report_reasoning(request)
            # With neither, nothing in the scheduler waits, defers sampling, fills, validates or ships a mask.
            request.structured_output_request = None
            request.status = RequestStatus.WAITING
            return
        # A grammar that is an exception ends its request at the next step, unscheduled, with this code.
        request.stop_reason = ErrorCode.REQUEST_NOT_ADMITTED.value
        refused: Future[None] = Future()
        refused.set_exception(PermissionError(f"{request.request_id} was not admitted"))
        structured.grammar = refused

    StructuredOutputManager.grammar_init = grammar_init


def _report_reasoning(request: Any) -> None:
    """Write into the ticket what the ranks have to know of the request's reasoning."""
    structured, sampling = request.structured_output_request, request.sampling_params
    said = {
        "reasoning_ended": structured.reasoning_ended,
        "reasoning_arguments": structured.reasoning_parser_kwargs,
    }
    told = {name: value for name, value in said.items() if value is not None}
    if told:
        # In copies: the parameters' own may be shared by the requests of n > 1.
        arguments = sampling.extra_args
        sampling.extra_args = {**arguments, TICKET_ARG: {**arguments[TICKET_ARG], **told}}


def end_sequences(_config: PodConfig) -> None:
    """Wrap `update_from_output`: a request that a rank names ends alone, as an error with its code.

    What its grammar forbade of a step's drafts is no proposal, as where the scheduler has the grammar.
    """
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415 - see above

    original = Scheduler.update_from_output

    def update_from_output(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
        for request_id, code in getattr(model_runner_output, ENDS_ATTRIBUTE, {}).items():
            _mark(self, request_id, code, model_runner_output)
        if invalid := getattr(model_runner_output, INVALID_ATTRIBUTE, None):
            scheduler_output.num_invalid_spec_tokens = {
                **(scheduler_output.num_invalid_spec_tokens or {}),
                **invalid,
            }
        ending = filter(None, map(self.requests.get, self.grammar_compile_error_reqs))
        codes = {request.request_id: request.stop_reason for request in ending}
        outputs = original(self, scheduler_output, model_runner_output)
        # The scheduler leaves the field empty in what it ends so.
        for output in (one for of_client in outputs.values() for one in of_client.outputs if codes):
            if output.finish_reason is not None and output.request_id in codes:
                output.stop_reason = codes[output.request_id]
                if minor.here().has_request_errors:
                    output.error = None  # vLLM's own, without our code, would win
        return outputs

    Scheduler.update_from_output = update_from_output


def _mark(scheduler: Any, request_id: str, code: str, output: Any) -> None:
    """Have the scheduler end a request, without what this step sampled for it."""
    request = scheduler.requests.get(request_id)
    if request is None or request.is_finished():
        return
    request.stop_reason = code
    if minor.here().has_request_errors:
        scheduler.grammar_compile_error_reqs[request_id] = None
    else:
        scheduler.grammar_compile_error_reqs.add(request_id)
    index = output.req_id_to_index.get(request_id)
    if index is not None and output.sampled_token_ids:
        output.sampled_token_ids[index] = []
    # A request without output must not bring prompt logprobs either: the scheduler asserts it.
    output.prompt_logprobs_dict.pop(request_id, None)
    output.prompt_token_id_logprobs_dict.pop(request_id, None)


def show_presence(config: PodConfig) -> None:
    """Wrap the engine core's busy loop: once the core stands, it beats, counts its steps and says hello.

    It also begins to choose its drafts there, where the resource leaves that to it.

    Not its `__init__`: vLLM loads plugins inside it, so in a spawned process it has begun by then.
    """
    from vllm.v1.engine import core  # noqa: PLC0415 - see above

    for process in (core.EngineCoreProc, core.DPEngineCoreProc):
        process.run_busy_loop = _showing(process.run_busy_loop, config)


def _showing(run_busy_loop: Callable[[Any], Any], config: PodConfig) -> Callable[[Any], Any]:
    @functools.wraps(run_busy_loop)
    def showing(self: Any) -> Any:
        engine = self.vllm_config.parallel_config.data_parallel_index
        _start(self.scheduler, config, core_slot(engine, config.workers))
        core_drafts.choose_drafts(self.scheduler, config, engine)
        read_while_masks_are_made(self)
        return run_busy_loop(self)

    return showing


def read_while_masks_are_made(core: Any) -> None:
    """Have a step's masks asked for before the scheduler takes the last one's output, not after.

    Where the rank is in the core's process, which else would do one after the other.
    """
    wrapper = getattr(core.model_executor, "driver_worker", None)
    guided = getattr(getattr(wrapper, "worker", None), "guided", None)
    if guided is None or core.batch_queue is None:
        return
    guided.unread = core.batch_queue
    core.check_for_draft_tokens = False  # it would wait for drafts that the matchers check
    original = core.scheduler.update_from_output

    def update_from_output(scheduler_output: Any, model_runner_output: Any) -> Any:
        guided.ask_early()
        return original(scheduler_output, model_runner_output)

    core.scheduler.update_from_output = update_from_output


def _start(scheduler: Any, config: PodConfig, slot: int) -> None:
    """Start both threads for a scheduler; they end with the process."""
    pulse = Pulse(config.heartbeats_file, slot, busy=scheduler.get_num_unfinished_requests)
    _count_steps(scheduler, pulse)
    pulse.start()
    ServiceLink(config.service_socket, lambda: ledger.hello("core")).start()


def _count_steps(scheduler: Any, pulse: Pulse) -> None:
    """Count every step whose output the scheduler takes; on the instance, around whatever the class has.

    With each goes the number of draft tokens that it asked for, which follows the load where a schedule does.
    """
    original = scheduler.update_from_output

    def update_from_output(scheduler_output: Any, model_runner_output: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens:
            pulse.step(core_drafts.drafts_of(scheduler_output))
        return original(scheduler_output, model_runner_output)

    scheduler.update_from_output = update_from_output


ENTRIES: Final = (
    LedgerEntry(
        name="core-detached",
        why="grammars in the engine core serialise masks, defer sampling under async scheduling, and compile "
        "in threads that nobody can stop",
        goes_when="vLLM lets a worker own a request's grammar",
        apply=detach_grammar,
    ),
    LedgerEntry(
        name="core-ends-sequences",
        why="a rank has no way to end one sequence, where raising ends the engine, nor to say which drafts a "
        "grammar forbids, which vLLM then counts as wrong guesses",
        goes_when="ModelRunnerOutput can carry a per-request error and a number of invalid drafts",
        apply=end_sequences,
    ),
    LedgerEntry(
        name="core-presence",
        why="/health stays green while the engine core or a rank hangs; heartbeats and a step count tell; "
        "numTokens Auto: vLLM's schedule of draft tokens does not follow what steps take; a rank in the "
        "core's process would wait for masks before the core reads the last step",
        goes_when="vLLM reports steps and liveness of its engine core, chooses draft tokens by load, and "
        "defers sampling for masks that workers make",
        apply=show_presence,
        ranks_only=False,
    ),
)

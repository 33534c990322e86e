"""Guided decoding around a model runner: what a step of vLLM's means to a RankGuide, for both model runners.

GuidedWorker wraps the runner *instance* when the model is loaded, which reaches every executor.
"""

import logging
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guided_contract.errors import ErrorCode
from guided_contract.names import GRAMMAR_ARG
from guided_contract.wire import Failed
from guided_engine.compat import minor
from guided_engine.ledger import LedgerEntry
from guided_engine.ranks.step import Arrival, Masks, Plan, ReadFaults, RowFault, SampledTokens
from guided_engine.ranks.tickets import ticket_of

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput

    # Loads both grammar libraries; the ledger imports this module in every process of vLLM.
    from guided_engine.compat.runner_v1 import RunnerV1
    from guided_engine.compat.runner_v2 import RunnerV2
    from guided_engine.ranks.rank_guide import RankGuide

# Attributes on the output rank's ModelRunnerOutput, read by compat.core: {request: error code}, and {request:
# RankGuide.invalid_drafts}.
ENDS_ATTRIBUTE: Final = "guided_ends"
INVALID_ATTRIBUTE: Final = "guided_invalid_drafts"

_log = logging.getLogger("guided_engine")
_T = TypeVar("_T")


class GuidedRunner:
    """Wraps one runner. No exception of ours leaves it: a fault ends the sequences here, not the engine.

    Parameters
    ----------
    adapter
        What differs between Model Runner V1 and V2: where a step's output is, how it is read and sampled.
    count_step
        Called once per forward pass.
    report
        Takes each sequence that this rank gave up; must not block.

    Attributes
    ----------
    unread
        Steps whose output the engine core has not read, where it runs in this process; else empty.
    """

    def __init__(
        self,
        runner: Any,
        guide: "RankGuide",
        adapter: "RunnerV1 | RunnerV2",
        count_step: Callable[[], None],
        report: Callable[[Failed], None] = lambda _end: None,
    ) -> None:
        self._runner = runner
        self._guide = guide
        self._adapter = adapter
        self._count_step = count_step
        self._tell_end = report
        self.unread: Sized = ()
        self._is_deferred = False
        self._execute_model = runner.execute_model
        self._sample_tokens = runner.sample_tokens
        config = runner.vllm_config
        # Sync scheduling tells the drafts with each step; under async they never leave the runner.
        self._asks_for_drafts = (
            config.speculative_config is not None and config.scheduler_config.async_scheduling
        )
        runner.execute_model = self.execute_model
        runner.sample_tokens = self.sample_tokens

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Take note of the step, then run the runner's own."""
        if not kwargs.get("dummy_run"):
            self._count_step()
            self._safely(lambda: self._begin(scheduler_output), None)
        return self._execute_model(scheduler_output, *args, **kwargs)

    def ask_early(self) -> None:
        """Have the masks of a step made that is sampled once the engine core has read the one before."""
        if self._is_deferred:
            self._is_deferred = False
            self._safely(self._guide.settle if self._asks_for_drafts else self._guide.ask, None)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Mask what is ours, and sample. Without a sequence of ours it is the runner's own."""
        # A warm-up has masks, but no sequence.
        if self._guide.is_empty or self._runner.execute_model_state is None:
            return self._sample_tokens(grammar_output)
        if not self._guide.is_sampling:
            output = self._sample_tokens(grammar_output)
        else:
            self._guide.waits.begin()
            self._safely(self._ask, None)
            edits = self._safely(self._guide.edits, None)  # while masks are made
            masks = self._safely(self._guide.masks, None, again=True)
            self._guide.waits.end()
            output, faults = self._adapter.sample(self._sample_tokens, masks, edits)
            read = self._adapter.reader(output)
            self._safely(lambda: self._guide.sampled(read, faults), None)
        self._safely(lambda: self._report(output), None)
        return output

    def close(self) -> None:
        """Give back what is held for as long as the rank runs."""
        self._safely(self._guide.close, None)

    def _begin(self, scheduler_output: Any) -> None:
        self._guide.leave_step()  # what fails from here on leaves nothing of the last one
        self._is_deferred = False
        arrivals = [
            self._arrival(new)
            for new in scheduler_output.scheduled_new_reqs
            if (params := new.sampling_params) is not None
            and (self._guide.has_factories or _is_guided(params))
        ]
        if self._guide.is_empty and not arrivals:
            self._guide.skip_step()
            return
        cached = scheduler_output.scheduled_cached_reqs
        self._guide.begin(
            Plan(
                finished=scheduler_output.finished_req_ids,
                arrivals=arrivals,
                # On Model Runner V1; on V2 they arrive anew, with all their tokens.
                resumed={name: cached.all_token_ids[name] for name in cached.resumed_req_ids},
                computed=[*zip(cached.req_ids, cached.num_computed_tokens, strict=True)],
                scheduled=scheduler_output.num_scheduled_tokens,
                drafts=scheduler_output.scheduled_spec_decode_tokens,
                is_whole=not self._asks_for_drafts,
            )
        )
        if self._guide.is_sampling:
            # Else the runner does not copy its drafts to the host. On this rank's own copy of the output.
            scheduler_output.has_structured_output_requests = True
            # Has the core in this process sample it once it has read the last one, as for its own masks.
            self._is_deferred = scheduler_output.pending_structured_output_tokens = bool(self.unread)

    def _arrival(self, new: Any) -> Arrival:
        params = new.sampling_params
        return Arrival(
            request_id=new.req_id,
            prompt_tokens=new.prompt_token_ids or (),
            prompt_length=new.prompt_len,
            known_tokens=new.prefill_token_ids,
            computed=new.num_computed_tokens,
            is_guided=_is_guided(params),
            ticket=ticket_of(params.extra_args),
            stop_tokens=tuple(params.all_stop_token_ids or ()),
            arguments=params.extra_args or {},
            max_tokens=params.max_tokens,
            sampling_params=params,
        )

    def _ask(self) -> None:
        if self._asks_for_drafts:
            # The last step's tokens are here before its drafts: taken while the draft model still runs.
            self._guide.settle()
            if (proposed := self._runner.take_draft_token_ids()) is not None:
                self._guide.learn_drafts(proposed.req_ids, proposed.draft_token_ids)
        self._guide.ask()

    def _report(self, output: Any) -> None:
        """Attach failures and invalid drafts to the model output, and tell the sidecar of failures.

        The engine core reads only the output rank's.
        """
        if invalid := self._guide.invalid_drafts:
            setattr(self._adapter.carrier(output), INVALID_ATTRIBUTE, invalid)
        ends = self._guide.ends()
        if ends:
            add_ends(self._adapter.carrier(output), {end.request_id: ErrorCode(end.code) for end in ends})
            for end in ends:
                self._tell_end(end)

    def _safely(self, call: Callable[[], _T], otherwise: _T, *, again: bool = False) -> _T:
        """Return what a call returns; sequences fail where it raises, and `again` calls once more then."""
        try:
            return call()
        except Exception:  # noqa: BLE001 - no rank may leave the others' step
            _log.exception("guidedmodel: guided decoding failed on this rank; its sequences are ended")
            self._guide.fail_all()
            return self._safely(call, otherwise) if again else otherwise


def grammar_output(masks: Masks | None) -> "GrammarOutput | None":
    """Return a step's masks in vLLM's form."""
    from vllm.v1.core.sched.output import GrammarOutput  # noqa: PLC0415 - only ranks need it

    if masks is None:
        return None
    told = (masks.acceptable,) if minor.here().has_acceptable_drafts else ()
    return GrammarOutput(masks.request_ids, masks.bitmask, *told)


def add_ends(output: Any, codes: Mapping[str, ErrorCode]) -> None:
    """Write on a ModelRunnerOutput which sequences are to end, and why."""
    known = getattr(output, ENDS_ATTRIBUTE, {})
    setattr(output, ENDS_ATTRIBUTE, {name: code.value for name, code in codes.items()} | known)


def add_faults(output: Any, faults: Mapping[str, RowFault]) -> None:
    """Write on a ModelRunnerOutput, whose tokens are known, which sequences their processors ended."""
    tokens, places = output.sampled_token_ids, output.req_id_to_index
    if ends := {name: fault.code for name, fault in faults.items() if fault.row < len(tokens[places[name]])}:
        add_ends(output, ends)


def tell_faults(output: Any, faults: ReadFaults) -> None:
    """Write a step's faults on its own output, as soon as the host has both: the step's token is dropped."""
    original = output.get_output

    def get_output() -> Any:
        made = original()
        add_faults(made, faults())
        return made

    output.get_output = get_output


class Copied:
    """What a step sampled, behind the `event` of its own copy to the host; see ranks.step.ReadSampled.

    An output's get_output() is the executor's to call, and once only.
    """

    def __init__(self, event: Any, tokens: Callable[[], SampledTokens]) -> None:
        self._event = event
        self._tokens = tokens

    def is_here(self) -> bool:
        """Return whether the device has passed the event; a CPU's stand-in cannot be asked, and has."""
        query = getattr(self._event, "query", None)
        return query is None or bool(query())

    def read(self) -> SampledTokens:
        """Wait for the event; return what was sampled."""
        self._event.synchronize()
        return self._tokens()


def _is_guided(params: Any) -> bool:
    """Return whether a request is guided."""
    structured = params.structured_outputs
    if structured is None or structured.all_constraints_none():
        # A name that has passed admission has become a constraint.
        return (params.extra_args or {}).get(GRAMMAR_ARG) is not None
    return True


ENTRIES: Final = (
    LedgerEntry(
        name="rank-masks",
        why="masks made in the engine core are serial, go through shared memory to every rank, and defer "
        "sampling under async scheduling; GuidedWorker gives each rank a matcher per sequence",
        upstream="https://github.com/vllm-project/vllm/pull/24300",
        goes_when="vLLM has a worker-side interface for grammar masks",
    ),
)

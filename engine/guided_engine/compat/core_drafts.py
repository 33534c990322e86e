"""numTokens Auto: the scheduler's number of draft tokens by batch size, chosen by what its steps take.

Around one scheduler, on the instance. Whatever fails here leaves vLLM its own schedule, and ends no request.
"""

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.records import MOST_WORD, DraftTokens
from guided_engine.compat import minor
from guided_engine.speculation.controller import Controller, Step
from guided_engine.telemetry import Telemetry

_PERIOD_S: Final = 1.0  # between two records
_log = logging.getLogger("guided_engine")


def choose_drafts(scheduler: Any, config: PodConfig, engine: int) -> None:
    """Begin to choose where the resource asks for it and vLLM follows a schedule; else log why not."""
    if not config.drafts_by_load:
        return
    telemetry = Telemetry(config.telemetry_socket)
    try:
        DraftsByLoad(scheduler, engine, telemetry.send).start()
    except Exception as error:  # noqa: BLE001 - the engine is to start all the same
        _log.warning("guidedmodel: numTokens Auto does nothing: %s", error)
        _tell_none(telemetry.send, engine, f"numTokens Auto does nothing: {error}")
        telemetry.close()


def drafts_of(scheduler_output: Any) -> int:
    """Return how many draft tokens for each sequence a step proposes."""
    if minor.here().skips_drafts and scheduler_output.skip_drafts:
        return 0
    drafts: int = scheduler_output.num_spec_tokens_to_schedule
    return drafts


class DraftsByLoad:
    """Times a scheduler's steps by `clock`, in seconds, and chooses its numbers of draft tokens.

    `send` takes a record, and must not block.

    Raises
    ------
    ValueError
        There is no schedule, it holds nothing to choose from, or verification is adaptive.
    """

    def __init__(
        self,
        scheduler: Any,
        engine: int,
        send: Callable[[DraftTokens], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = scheduler.vllm_config
        own = scheduler.dynamic_sd_lookup
        if own is None:
            raise ValueError("vLLM has no schedule by batch size here")
        if settings.speculative_config.enable_adaptive_verification:
            raise ValueError("verification is adaptive")
        self._scheduler, self._own = scheduler, own
        self._controller, self._is_choosing = Controller(own), True
        self._engine, self._send, self._clock = engine, send, clock
        # What the latest steps proposed: a sequence's drafts are verified so many steps later as stages are.
        self._proposed: deque[int] = deque(maxlen=1 + settings.parallel_config.pipeline_parallel_size)
        # Steps in flight, by identity: vLLM's output, when it began, and how many draft tokens it verifies
        # and proposes; None: they differ.
        self._flying: dict[int, tuple[Any, float, int | None]] = {}
        self._done_s = self._sent_s = clock()
        self._is_busy = False  # since the latest step was done
        self._told = 0  # changes

    def start(self) -> None:
        """Wrap the scheduler's two methods, and give it the controller's lookup."""
        scheduler = self._scheduler
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def timed_schedule(*arguments: Any, **options: Any) -> Any:
            began_s = self._clock()
            output = schedule(*arguments, **options)
            self._guarded(self._note, output, began_s)
            return output

        def timed_update(scheduler_output: Any, model_runner_output: Any) -> Any:
            self._guarded(self._measure, scheduler_output, model_runner_output)
            outputs = update(scheduler_output, model_runner_output)
            self._guarded(self._end)
            return outputs

        scheduler.schedule, scheduler.update_from_output = timed_schedule, timed_update
        scheduler.dynamic_sd_lookup = self._controller.lookup
        _tell_none(self._send, self._engine, "")  # what the sidecar knows is of an engine before

    def _guarded(self, act: Callable[..., None], *arguments: Any) -> None:
        if not self._is_choosing:
            return
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, requests are to go on
            _log.exception("guidedmodel: numTokens Auto failed; vLLM goes on with its own schedule")
            self._is_choosing = False
            self._flying.clear()
            self._scheduler.dynamic_sd_lookup = self._own
            _tell_none(self._send, self._engine, f"numTokens Auto ended by a fault: {type(error).__name__}")

    def _note(self, output: Any, began_s: float) -> None:
        if not output.total_num_scheduled_tokens:
            self._is_busy = False  # requests wait for something else than a step
            return
        self._proposed.append(drafts_of(output))
        # Steps between belong to other batches, which may have another number.
        is_steady = len(self._proposed) == self._proposed.maxlen and self._proposed[0] == self._proposed[-1]
        self._flying[id(output)] = output, began_s, self._proposed[-1] if is_steady else None

    def _measure(self, output: Any, sampled: Any) -> None:
        """Take in a step whose tokens have come, if it was noted."""
        now_s = self._clock()
        _, began_s, steady = self._flying.pop(id(output), (None, None, None))
        if began_s is None:
            return
        # An idle device begins when a step is scheduled, a busy one when the step before is done.
        took_s = now_s - (self._done_s if self._is_busy else max(self._done_s, began_s))
        self._done_s = now_s
        drafts, tokens = output.scheduled_spec_decode_tokens, sampled.sampled_token_ids
        verified = max(map(len, drafts.values()), default=0) if steady is None else steady
        accepted: Counter[int] = Counter()
        has_prompts = not tokens
        for request_id, number in output.num_scheduled_tokens.items():
            if number != 1 + len(drafts.get(request_id, ())):
                has_prompts = True
            elif tokens and (own := tokens[sampled.req_id_to_index[request_id]]):
                accepted[min(len(own) - 1, verified)] += 1
        is_clean = steady is not None and not has_prompts
        batch = len(output.num_scheduled_tokens)
        self._controller.take(Step(batch, verified, took_s if is_clean else None, accepted))
        if now_s - self._sent_s >= _PERIOD_S:
            self._tell(batch, now_s)

    def _end(self) -> None:
        self._is_busy = bool(self._scheduler.get_num_unfinished_requests())

    def _tell(self, batch: int, now_s: float) -> None:
        before, self._told, self._sent_s = self._told, self._controller.changes, now_s
        self._send(
            DraftTokens(
                engine=self._engine,
                chosen=self._controller.chosen(batch),
                changes=self._told - before,
            )
        )


def _tell_none(send: Callable[[DraftTokens], None], engine: int, why: str) -> None:
    """Say that nothing is chosen, and why not; "": nothing has been measured yet."""
    with contextlib.suppress(Exception):
        send(DraftTokens(engine=engine, chosen=None, why=why[:MOST_WORD]))

"""The engine core's signs of life: heartbeats with a step count, and its hello to the sidecar."""

import functools
from collections.abc import Callable
from typing import Any

from guided_contract.config import PodConfig
from guided_contract.heartbeat import core_slot
from guided_engine import ledger
from guided_engine.compat import core_drafts
from guided_engine.heartbeats import Pulse
from guided_engine.service_link import ServiceLink


def show_presence(config: PodConfig) -> None:
    """Wrap the engine core's busy loop: once the core stands, it beats, counts its steps and says hello.

    It also begins to choose its drafts there, where the resource leaves that to it.

    Not its `__init__`: vLLM loads plugins inside it, so in a spawned process it has begun by then.
    """
    from vllm.v1.engine import core  # noqa: PLC0415 - vLLM is imported only where it is changed

    for process in (core.EngineCoreProc, core.DPEngineCoreProc):
        process.run_busy_loop = _showing(process.run_busy_loop, config)


def _showing(run_busy_loop: Callable[[Any], Any], config: PodConfig) -> Callable[[Any], Any]:
    @functools.wraps(run_busy_loop)
    def showing(self: Any) -> Any:
        engine = self.vllm_config.parallel_config.data_parallel_index
        _start(self.scheduler, config, core_slot(engine, config.workers))
        core_drafts.choose_drafts(self.scheduler, config, engine)
        return run_busy_loop(self)

    return showing


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
            pulse.step(scheduler_output.num_spec_tokens_to_schedule)
        return original(scheduler_output, model_runner_output)

    scheduler.update_from_output = update_from_output

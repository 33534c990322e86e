"""vLLM's own scheduler without an engine; its model runner is the test."""

from typing import Any

import pytest
from devtools import tinymodel

from guided_contract import names
from guided_contract.config import PodConfig
from guided_engine.compat import core
from guided_engine.compat.runner import ENDS_ATTRIBUTE

_upstream: list[Any] = []  # vLLM's own grammar_init
TICKET = {names.TICKET_ARG: {"key": "k", "backend": "xgrammar"}}


def change_core(monkeypatch: pytest.MonkeyPatch, pod: PodConfig) -> None:
    """Make the engine core's changes, until the test's end."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager

    _upstream[:] = [StructuredOutputManager.grammar_init]
    # Set to themselves, so that the test's end takes the changes back.
    monkeypatch.setattr(StructuredOutputManager, "grammar_init", StructuredOutputManager.grammar_init)
    monkeypatch.setattr(Scheduler, "update_from_output", Scheduler.update_from_output)
    core.detach_grammar(pod)
    core.end_sequences(pod)


class Core:
    """A real scheduler with a real structured-output manager, asynchronous or not."""

    def __init__(self, *, is_async: bool, **arguments: Any) -> None:
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        config = EngineArgs(
            model=str(tinymodel.models() / "tiny"),
            max_model_len=64,
            max_num_seqs=4,
            enforce_eager=True,
            enable_prefix_caching=False,
            async_scheduling=is_async,
            **arguments,
        ).create_engine_config()
        config.cache_config.num_gpu_blocks = 64
        config.scheduler_config.async_scheduling = is_async
        spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=torch.float32)
        cache = KVCacheConfig(64, [], [KVCacheGroupSpec(["layer"], spec)])
        self.manager = StructuredOutputManager(config)
        self.scheduler: Any = config.scheduler_config.get_scheduler_cls()(
            config, cache, self.manager, block_size=16, log_stats=False
        )

    def add(  # noqa: PLR0913 - what a request consists of, by name
        self,
        request_id: str,
        *,
        guided: bool = True,
        ticket: bool = True,
        by_upstream: bool = False,
        regex: str = "a+",
        extra: dict[str, Any] | None = None,
        resumable: bool = False,
        **fields: Any,
    ) -> Any:
        """Add a request.

        Where it is guided `by_upstream`, vLLM's own manager keeps its grammar, made by llguidance; one that
        is `resumable` is a part of streaming input, `extra` its arguments where it has no ticket.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams
        from vllm.v1.request import Request

        of_request = {name: fields.pop(name) for name in list(fields) if name.startswith("reasoning")}
        constraint = StructuredOutputsParams(regex=regex) if guided else None
        sampling = SamplingParams(
            max_tokens=8,
            structured_outputs=constraint,
            extra_args=TICKET if ticket else extra,
            **fields,
        )
        sampling.update_from_generation_config({}, 1)
        request = Request(request_id, [5, 6, 7], sampling, None, resumable=resumable, **of_request)
        if request.use_structured_output:
            if constraint is not None:
                constraint._backend = "guidance"
            init = _upstream[0] if by_upstream else type(self.manager).grammar_init
            init(self.manager, request)
        self.scheduler.add_request(request)
        return request

    def letter(self, text: str) -> int:
        token: int = self.manager.tokenizer.convert_tokens_to_ids(text)
        return token

    def requests(self) -> list[Any]:
        return list(self.scheduler.requests.values())

    def step(self, ends: dict[str, str] | None = None, token: int = 9) -> dict[str, Any]:
        """Schedule, answer each row with one token, and return what goes to the client, by request."""
        return self.take(self.scheduler.schedule(), ends, token)

    def take(self, scheduled: Any, ends: dict[str, str] | None = None, token: int = 9) -> dict[str, Any]:
        output = self.output(scheduled, {name: [token] for name in scheduled.num_scheduled_tokens})
        if ends:
            setattr(output, ENDS_ATTRIBUTE, ends)
        outputs = self.scheduler.update_from_output(scheduled, output)
        return {one.request_id: one for client in outputs.values() for one in client.outputs}

    @staticmethod
    def output(scheduled: Any, sampled: dict[str, list[int]], **more: Any) -> Any:
        """Return what a model runner makes of a step that sampled these tokens."""
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(scheduled.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[sampled[name] for name in names],
            **more,
        )

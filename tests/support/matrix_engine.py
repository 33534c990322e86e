"""The engine of a cell, in the cell's own process: made, given its grammars, and asked."""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from guided_contract import names, wire
from guided_contract.wire import Backend
from support.adapter import lora_request
from support.engine import wait_until
from support.fake_service import FakeService, Peer
from support.matrix_process import Job
from support.matrix_requests import Answer, Request

LOAD_TIMEOUT_S = 60.0
MAX_MODEL_LEN = 256  # tokens


def make_engine(job: Job) -> Any:
    from vllm import LLM

    from support import reasoning_parser

    arguments: dict[str, Any] = {
        "dtype": "float32",
        "enforce_eager": True,
        "async_scheduling": False,
        "enable_prefix_caching": False,
        **job.arguments,
    }
    if job.arguments.get("distributed_executor_backend") == "uni":
        _keep_executor()
    if job.pod is not None:
        arguments["worker_cls"] = "guided_engine.worker.GuidedWorker"
    if job.speculation:
        arguments["speculative_config"] = job.speculation
        arguments["per_request_spec_decode_metrics"] = "detailed"
    return LLM(
        job.model,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=32,
        seed=0,
        reasoning_parser=reasoning_parser.NAME,
        reasoning_parser_plugin=reasoning_parser.PLUGIN,
        disable_log_stats=False,
        **arguments,
    )


def _keep_executor() -> None:
    """Let a rank run in the engine core's process, which upstream refuses on a CPU: OpenMP's settings."""
    from vllm.platforms import current_platform

    platform: Any = type(current_platform)
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        original(cls, vllm_config)
        vllm_config.parallel_config.distributed_executor_backend = "uni"

    platform.check_and_update_config = classmethod(check_and_update_config)


def receive(worker: Any) -> None:
    """Give a later stage of V1 what it receives into: an eager engine on a CPU has no warm-up to make it."""
    runner = worker.model_runner
    if getattr(runner, "intermediate_tensors", "not V1") is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


def outputs(
    llm: Any, requests: Sequence[Request], tickets: Mapping[str, wire.Ticket], adapter: str | None = None
) -> list[Any]:
    """Return vLLM's outputs of requests."""
    found: list[Any] = []
    # On a CPU, Model Runner V2 applies an adapter to the whole batch: docs/upstream-quirks.md.
    for is_adapted, batch in itertools.groupby(requests, lambda request: "adapter" in request.params):
        alike = list(batch)
        found += llm.generate(
            [request.prompt for request in alike],
            [sampling(request, tickets.get(request.key)) for request in alike],
            use_tqdm=False,
            lora_request=lora_request(adapter) if is_adapted and adapter else None,
        )
    return found


def answer(output: Any) -> Answer:
    """Return the choices' tokens, each with the likely ones if asked for, and how the last one ended."""
    tokens: list[int] = []
    for choice in output.outputs:
        tokens += ([-1] if choice.index else []) + list(choice.token_ids)
        for likely in choice.logprobs or ():
            # What the mask leaves; which of the others are told is chance.
            tokens += [-2, *sorted(token for token, found in likely.items() if found.logprob > -30)]
    last = output.outputs[-1]
    return tokens, last.finish_reason, last.stop_reason


def sampling(request: Request, ticket: wire.Ticket | None, extra: Mapping[str, Any] | None = None) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    constraint = None
    if request.kind != "none":
        value: Any = request.spec
        if request.kind == "json_object":
            value = True
        elif request.kind == "choice":
            value = json.loads(request.spec)
        constraint = StructuredOutputsParams(**{request.kind: value})
    arguments = dict(extra or {})
    if ticket is not None:
        arguments[names.TICKET_ARG] = msgspec.to_builtins(ticket)
    settings = {"temperature": 0.0, **{k: v for k, v in request.params.items() if k != "adapter"}}
    return SamplingParams(
        max_tokens=request.max_tokens,
        structured_outputs=constraint,
        extra_args=arguments or None,
        **settings,
    )


def load_all(
    job: Job, service: FakeService, backend: Backend, requests: Sequence[Request]
) -> dict[str, wire.Ticket]:
    """Compile every grammar as the sidecar does, and have all ranks load it."""
    from guided_grammar.registry import Backends
    from guided_sidecar.grammar.compile import followed, vocabulary

    assert job.pod is not None
    wait_until(lambda: len(samplers(service)) == job.pod.tensor_parallel, LOAD_TIMEOUT_S)
    compiler = Backends(vocabulary.load(job.pod))[backend]
    tickets: dict[str, wire.Ticket] = {}
    known = {answer.key for answer in service.received(wire.Loaded)}
    for request in requests:
        if request.kind == "none" or request.key in tickets:
            continue
        key = hashlib.sha256(f"{backend}:{request.key}".encode()).hexdigest()
        spec, positions = request.spec, []
        if request.kind == "json":
            relaxed, positions = followed.split(json.loads(spec), backend)
            spec = json.dumps(relaxed)
        compiled = compiler.compile(request.kind, spec)
        load = wire.Load(key=key, backend=backend, spec=compiled.source(), positions=positions)
        for rank in samplers(service) if key not in known else ():
            rank.send(load)
        tickets[request.key] = wire.Ticket(key=key, backend=backend)
    wanted = len({ticket.key for ticket in tickets.values()}) * job.pod.tensor_parallel
    wait_until(lambda: len(loaded(service, backend, tickets)) == wanted, LOAD_TIMEOUT_S)
    failed = [answer.error for answer in loaded(service, backend, tickets) if answer.error]
    assert not failed, failed
    return tickets


def samplers(service: FakeService) -> list[Peer]:
    """Return the ranks of the last pipeline stage."""
    return [peer for peer in service.peers("rank") if peer.hello is not None and peer.hello.samples]


def loaded(service: FakeService, backend: Backend, tickets: dict[str, wire.Ticket]) -> list[wire.Loaded]:
    keys = {ticket.key for ticket in tickets.values() if ticket.backend == backend}
    return [answer for answer in service.received(wire.Loaded) if answer.key in keys]

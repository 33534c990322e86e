"""One engine of the matrix, `python -m support.matrix_cell JOB.json`: real vLLM, offline, on a CPU.

A program of its own, because an engine's environment is settled when Python starts. Writes what every request
generated to the job's `answer` file.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from guided_contract import names, wire
from guided_contract.wire import Backend
from support.engine import wait_until
from support.fake_service import FakeService
from support.matrix import Job, Request, corpus

LOAD_TIMEOUT_S = 60.0


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    if job.pod is None:
        answers = run(job, None)
    else:
        with FakeService(job.pod.service_socket) as service:
            answers = run(job, service)
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def run(job: Job, service: FakeService | None) -> dict[str, list[Any]]:
    """Return per backend what each request of the corpus generated: (tokens, finish reason, stop reason)."""
    llm = make_engine(job)
    answers = {}
    for backend in job.backends:
        requests = corpus()
        tickets = {} if service is None else load_all(job, service, backend, requests)
        prompts = [request.prompt for request in requests]
        params = [sampling(request, tickets.get(request.key)) for request in requests]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        ended = [output.outputs[0] for output in outputs]
        answers[backend] = [(list(one.token_ids), one.finish_reason, one.stop_reason) for one in ended]
    facts = llm.llm_engine.vllm_config
    answers["facts"] = [facts.scheduler_config.async_scheduling, facts.use_v2_model_runner]
    return answers


def make_engine(job: Job) -> Any:
    from vllm import LLM

    arguments: dict[str, Any] = {
        "tensor_parallel_size": job.tensor_parallel,
        "async_scheduling": job.is_async,
        "structured_outputs_config": {"backend": job.backends[0]},
        **job.arguments,
    }
    if job.pod is not None:
        arguments["worker_cls"] = "guided_engine.worker.GuidedWorker"
    if job.draft_model is not None:
        arguments["speculative_config"] = {
            "method": "draft_model",
            "model": job.draft_model,
            "num_speculative_tokens": 3,
        }
    return LLM(
        job.model,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=32,
        enforce_eager=True,
        enable_prefix_caching=False,
        seed=0,
        disable_log_stats=True,
        **arguments,
    )


def sampling(request: Request, ticket: wire.Ticket | None) -> Any:
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
    extra = None if ticket is None else {names.TICKET_ARG: msgspec.to_builtins(ticket)}
    return SamplingParams(
        temperature=0.0, max_tokens=request.max_tokens, structured_outputs=constraint, extra_args=extra
    )


def load_all(
    job: Job, service: FakeService, backend: Backend, requests: Sequence[Request]
) -> dict[str, wire.Ticket]:
    """Compile every grammar as the sidecar does, and have all ranks load it."""
    from guided_sidecar.grammar import artifacts, backends, vocabulary

    assert job.pod is not None
    words = vocabulary.load(job.pod)
    is_xgrammar = backend == "xgrammar"
    compiler = backends.XGrammarBackend(words, 2) if is_xgrammar else backends.GuidanceBackend(words)
    tickets: dict[str, wire.Ticket] = {}
    for request in requests:
        if request.kind == "none" or request.key in tickets:
            continue
        key = hashlib.sha256(f"{backend}:{request.key}".encode()).hexdigest()
        text = compiler.compile(request.kind, request.spec, any_whitespace=True).load_text()
        load = wire.Load(key=key, backend=backend, spec=text)
        if is_xgrammar:
            sha256 = artifacts.write(job.pod.grammars_folder, key, text.encode())
            load = wire.Load(key=key, backend=backend, artifact=key, sha256=sha256)
        for rank in service.peers("rank"):
            rank.send(load)
        tickets[request.key] = wire.Ticket(key=key, backend=backend)
    wanted = len({ticket.key for ticket in tickets.values()}) * job.tensor_parallel
    wait_until(lambda: len(loaded(service, backend, tickets)) == wanted, LOAD_TIMEOUT_S)
    failed = [answer.error for answer in loaded(service, backend, tickets) if answer.error]
    assert not failed, failed
    return tickets


def loaded(service: FakeService, backend: Backend, tickets: dict[str, wire.Ticket]) -> list[wire.Loaded]:
    keys = {ticket.key for ticket in tickets.values() if ticket.backend == backend}
    return [answer for answer in service.received(wire.Loaded) if answer.key in keys]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

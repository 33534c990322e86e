"""One engine of the matrix, `python -m support.matrix_cell JOB.json`: real vLLM, offline, on a CPU.

A program of its own, because an engine's environment is settled when Python starts. Writes what every request
generated to the job's `answer` file.
"""

import hashlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from guided_contract import names, wire
from guided_contract.wire import Backend
from guided_engine.processors.registry import CHOICE_ARG
from support import matrix_costs, matrix_life
from support.adapter import lora_request
from support.digests import Comparing
from support.engine import wait_until
from support.fake_service import FakeService, Peer
from support.matrix import BACKENDS, DEAD_END, Job, mixed
from support.matrix_requests import Answer, Request, asked, corpus, overlong, processed, unspeculated

LOAD_TIMEOUT_S = 60.0
# vLLM's own counters, as they stand when the corpora have been answered.
COUNTED = (
    "num_preemptions",
    "prefix_cache_hits",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    if job.pod is None:
        answers = run(job, None)
    else:
        with FakeService(job.pod.service_socket) as service, Comparing(job.pod) as digests:
            answers = run(job, service)
            answers["agreement"] = digests.outcome()
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def run(job: Job, service: FakeService | None) -> dict[str, Any]:
    """Return what each request generated: (tokens, finish reason, stop reason), by backend and by section."""
    llm = make_engine(job)
    llm.collective_rpc(receive)
    engine = llm.llm_engine.vllm_config
    answers: dict[str, Any] = {
        "facts": {
            "async": engine.scheduler_config.async_scheduling,
            "runner": "V2" if engine.use_v2_model_runner else "V1",
        }
    }
    for backend in BACKENDS:
        requests = asked(backend, speculates=bool(job.speculation), adapter=job.adapter is not None)
        if service is None:
            choose_upstream_backend(llm, backend)
            answers[backend] = generate(llm, requests, {}, adapter=job.adapter)
            assert_upstream_backend(llm, backend)
        else:
            tickets = load_all(job, service, backend, requests)
            answers[backend] = generate(llm, requests, tickets, adapter=job.adapter)
    for name in COUNTED:
        answers[name] = sum(m.value for m in llm.get_metrics() if m.name == f"vllm:{name}")
    if service is not None:
        tickets = load_all(job, service, "xgrammar", corpus() + unspeculated())
        answers["mixed"] = generate(llm, corpus(), mixed_tickets(job, service))
        chosen = {CHOICE_ARG: ["no-repeat"]}
        answers["processed"] = generate(llm, processed(), tickets, chosen)
        answers["offline"] = offline_refusal(llm)
        answers["faults"] = faults(llm, job, service, tickets)
        answers["refused"] = refused(llm, tickets)
        answers["live"], answers["again"] = matrix_life.aborts(
            llm, corpus()[:8], matrix_life.doom(corpus()[:8]), tickets
        )
        # The ranks hear of an end with the next step that is scheduled.
        generate(llm, [Request("Go on\n", "none", "", 1)], {})
        answers["left"] = llm.collective_rpc(matrix_life.sequences)
        answers["costs"] = matrix_costs.costs(llm, corpus()[0], tickets)
    return answers


def receive(worker: Any) -> None:
    """Give a later stage of V1 what it receives into: an eager engine on a CPU has no warm-up to make it."""
    runner = worker.model_runner
    if getattr(runner, "intermediate_tensors", "not V1") is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


def refused(llm: Any, tickets: Mapping[str, wire.Ticket]) -> list[str]:
    """Return why vLLM refuses each request that it does not speculate with; empty where it takes it."""
    from vllm.exceptions import VLLMValidationError

    reasons = []
    for request in unspeculated():
        try:
            generate(llm, [request], tickets)
            reasons.append("")
        except VLLMValidationError as error:
            reasons.append(str(error))
    return reasons


def choose_upstream_backend(llm: Any, backend: Backend) -> None:
    """Make upstream's engine, which knows one backend, start over with another (it runs in this process)."""
    llm.llm_engine.vllm_config.structured_outputs_config.backend = backend
    manager = llm.llm_engine.engine_core.engine_core.structured_output_manager
    manager.backend = None
    manager._grammar_bitmask = None


def assert_upstream_backend(llm: Any, backend: Backend) -> None:
    used = type(llm.llm_engine.engine_core.engine_core.structured_output_manager.backend).__name__
    assert used == {"xgrammar": "XgrammarBackend", "guidance": "GuidanceBackend"}[backend]


def generate(
    llm: Any,
    requests: Sequence[Request],
    tickets: Mapping[str, wire.Ticket],
    extra: Mapping[str, Any] | None = None,
    adapter: str | None = None,
) -> list[Answer]:
    answers: list[Answer] = []
    # On a CPU, Model Runner V2 applies an adapter to the whole batch: docs/decisions/0003.
    for is_adapted, batch in itertools.groupby(requests, lambda request: "adapter" in request.params):
        alike = list(batch)
        outputs = llm.generate(
            [request.prompt for request in alike],
            [sampling(request, tickets.get(request.key), extra) for request in alike],
            use_tqdm=False,
            lora_request=lora_request(adapter) if is_adapted and adapter else None,
        )
        answers += map(answer, outputs)
    return answers


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


def mixed_tickets(job: Job, service: FakeService) -> dict[str, wire.Ticket]:
    """Return tickets by which ranks and scheduler mask requests of one batch, with both libraries."""
    known = {backend: load_all(job, service, backend, corpus()) for backend in BACKENDS}
    return {
        key: msgspec.structs.replace(known[backend][key], placement=placement)
        for key, (backend, placement) in mixed().items()
    }


def faults(llm: Any, job: Job, service: FakeService, tickets: Mapping[str, wire.Ticket]) -> dict[str, Any]:
    """Send one request of every fault among healthy ones, in one batch, then those without the faults.

    Returns what became of each, and under "without faults" what the second batch gave.
    """
    healthy, unguided = corpus()[0], corpus()[26]
    stuck = Request(healthy.prompt, "grammar", DEAD_END, 30)
    known = load_all(job, service, "xgrammar", [stuck])
    early, random = overlong()
    requests = {
        "healthy": (healthy, tickets[healthy.key], {}),
        "colour": (msgspec.structs.replace(early, params={}), tickets[early.key], {}),
        "overlong": (early, tickets[early.key], {}),
        "seeded overlong": (random, tickets[random.key], {}),
        "no ticket": (healthy, None, {}),
        "not loaded": (healthy, wire.Ticket(key="absent", backend="xgrammar"), {}),
        "dead end": (stuck, known[stuck.key], {}),
        "processor": (unguided, None, {CHOICE_ARG: "fails"}),
        "guided processor": (healthy, tickets[healthy.key], {CHOICE_ARG: "fails"}),
        "unguided": (unguided, None, {}),
        "seeded healthy": (healthy, tickets[healthy.key], {}),
        "seeded unguided": (unguided, None, {}),
    }
    together = in_one_batch(llm, requests)
    untouched = {
        name: requests[name]
        for name, (_, reason, _) in together.items()
        if reason != "error" and "processor" not in name
    }
    return {**together, "without faults": in_one_batch(llm, untouched)}


def in_one_batch(
    llm: Any, requests: Mapping[str, tuple[Request, wire.Ticket | None, dict[str, Any]]]
) -> dict[str, Any]:
    """Send requests at temperature 0, those whose name says so at temperature 1 with a seed."""
    params = [sampling(request, ticket, extra) for request, ticket, extra in requests.values()]
    for name, chosen in zip(requests, params, strict=True):
        if name.startswith("seeded"):
            chosen.temperature, chosen.seed = 1.0, 7
    prompts = [request.prompt for request, _, _ in requests.values()]
    past_the_offline_guard(llm)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return {name: answer(output) for name, output in zip(requests, outputs, strict=True)}


def offline_refusal(llm: Any) -> str:
    """Ask as an application in Python would, which has no ticket; return what it is told."""
    try:
        llm.generate(["x"], [sampling(corpus()[0], None)], use_tqdm=False)
    except Exception as error:  # noqa: BLE001 - the test reads what it says
        return str(error)
    return "no refusal"


def past_the_offline_guard(llm: Any) -> None:
    """Let requests without a ticket through to the engine core, as a front end outside this process would."""
    engine = llm.llm_engine
    engine.add_request = type(engine).add_request.__wrapped__.__get__(engine)


def make_engine(job: Job) -> Any:
    from vllm import LLM

    from support import reasoning_parser

    arguments: dict[str, Any] = {
        "enforce_eager": True,
        "async_scheduling": False,
        "enable_prefix_caching": False,
        **job.arguments,
    }
    if job.pod is not None:
        arguments["worker_cls"] = "guided_engine.worker.GuidedWorker"
    if job.speculation:
        arguments["speculative_config"] = job.speculation
    return LLM(
        job.model,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=32,
        seed=0,
        reasoning_parser=reasoning_parser.NAME,
        reasoning_parser_plugin=reasoning_parser.PLUGIN,
        disable_log_stats=False,
        **arguments,
    )


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
    from guided_sidecar.grammar import artifacts, backends, counted, vocabulary

    assert job.pod is not None
    wait_until(lambda: len(samplers(service)) == job.pod.tensor_parallel, LOAD_TIMEOUT_S)
    words = vocabulary.load(job.pod)
    is_xgrammar = backend == "xgrammar"
    compiler = backends.XGrammarBackend(words, 2) if is_xgrammar else backends.GuidanceBackend(words)
    tickets: dict[str, wire.Ticket] = {}
    known = {answer.key for answer in service.received(wire.Loaded)}
    for request in requests:
        if request.kind == "none" or request.key in tickets:
            continue
        key = hashlib.sha256(f"{backend}:{request.key}".encode()).hexdigest()
        spec, positions = request.spec, []
        if request.kind == "json":
            relaxed, positions = counted.split(json.loads(spec), backend)
            spec = json.dumps(relaxed)
        text = compiler.compile(request.kind, spec, any_whitespace=True).load_text()
        load = wire.Load(key=key, backend=backend, spec=text, positions=positions)
        if is_xgrammar:
            sha256 = artifacts.write(job.pod.grammars_folder, key, text.encode())
            load = msgspec.structs.replace(load, spec=None, artifact=key, sha256=sha256)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))

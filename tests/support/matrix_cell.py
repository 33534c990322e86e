"""One engine of the matrix, `python -m support.matrix_cell JOB.json`: real vLLM, offline, on a CPU.

A program of its own, because an engine's environment is settled when Python starts. Writes what every request
generated to the job's `answer` file.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from guided_contract import wire
from guided_contract.wire import Backend
from guided_engine.processors.choice import ARGUMENT
from support import matrix_drafts, matrix_life
from support.digests import Comparing
from support.fake_service import FakeService
from support.matrix import BACKENDS, DEAD_END
from support.matrix_engine import answer, load_all, make_engine, outputs, receive, sampling
from support.matrix_process import Job
from support.matrix_requests import (
    PROCESSED,
    Request,
    asked,
    beside,
    corpus,
    overlong,
    processed,
    unguided,
)

# vLLM's own counters, as they stand when the corpora have been answered.
COUNTED = ("num_preemptions", "prefix_cache_hits")
DRAFTED = ("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens")
Asked = tuple[Request, wire.Ticket | None, dict[str, Any]]  # with the arguments of its processors


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    if job.pod is None:
        answers = run(job, None)
    else:
        with FakeService(job.pod.service_socket) as service, Comparing(job.pod) as digests:
            answers = run(job, service)
            answers["agreement"] = digests.outcome(service.received(wire.Failed))
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def run(job: Job, service: FakeService | None) -> dict[str, Any]:
    """Return what each request generated: (tokens, finish reason, stop reason), by backend and by section."""
    if job.speculation:
        matrix_life.prepare()
    llm = make_engine(job)
    llm.collective_rpc(receive)
    engine = llm.llm_engine.vllm_config
    answers: dict[str, Any] = {
        "facts": {
            "async": engine.scheduler_config.async_scheduling,
            "runner": "V2" if engine.use_v2_model_runner else "V1",
        }
    }
    drafts: dict[str, Any] = {}
    if service is not None:
        llm.collective_rpc(matrix_drafts.watch)
        shares = llm.collective_rpc(matrix_life.shares_a_process)
        answers["facts"]["shares a process"] = any(shares)
    for backend in BACKENDS:
        requests = asked(backend, speculates=bool(job.speculation), adapter=job.adapter is not None)
        if service is None:
            choose_upstream_backend(llm, backend)
            found = outputs(llm, requests, {}, job.adapter)
            assert_upstream_backend(llm, backend)
        else:
            found = outputs(llm, requests, load_all(job, service, backend, requests), job.adapter)
            drafts[backend] = list(map(matrix_drafts.counted, found))
        answers[backend] = list(map(answer, found))
    for name in COUNTED:
        answers[name] = counted(llm, name)
    if service is not None:
        tickets = load_all(job, service, "xgrammar", corpus())
        answers["drafts"] = drafts
        answers |= with_processors(llm, tickets)
        answers["faults"] = faults(llm, job, service, tickets)
        answers["live"], answers["again"] = matrix_life.aborts(llm, corpus()[:4], tickets)
        # The ranks hear of an end with the next step that is scheduled.
        outputs(llm, [Request("Go on\n", "none", "", 1)], {})
        answers["left"] = llm.collective_rpc(matrix_life.sequences)
        if job.speculation:
            noted = matrix_drafts.noted(llm)
            before = [counted(llm, name) for name in DRAFTED]
            answers["crowded"] = matrix_life.crowded(llm, corpus()[:3], tickets)
            answers["crowded drafts"] = [counted(llm, name) for name in DRAFTED], before
            answers["draft tokens"], answers["draft passes"] = (
                after[len(known) :] for after, known in zip(matrix_drafts.noted(llm), noted, strict=True)
            )
    return answers


def counted(llm: Any, name: str) -> int:
    """Return what a counter of vLLM's stands at."""
    return sum(m.value for m in llm.get_metrics() if m.name == f"vllm:{name}")


def with_processors(llm: Any, tickets: Mapping[str, wire.Ticket]) -> dict[str, Any]:
    """Send requests with each choice of processors, all at once, for which there is no room."""
    before = counted(llm, "num_preemptions")
    found = in_one_batch(
        llm,
        {
            f"{names} {index}": (request, tickets.get(request.key), {ARGUMENT: names})
            for names in PROCESSED
            for index, request in enumerate(processed())
        },
    )
    answers: dict[str, Any] = {
        "processed": {name: answer(output) for name, output in found.items()},
        "preempted": counted(llm, "num_preemptions") - before,
    }
    if llm.llm_engine.vllm_config.use_v2_model_runner:
        answers["beside"] = beside_others(llm, tickets)
    return answers


def beside_others(llm: Any, tickets: Mapping[str, wire.Ticket]) -> dict[str, Any]:
    """Return of each request its tokens, and of those that ask for them the log-probabilities at each."""
    asked: dict[str, Asked] = {
        name: (request, tickets.get(request.key), {ARGUMENT: names})
        for name, (names, request) in beside().items()
    }
    found = {name: output.outputs[0] for name, output in in_one_batch(llm, asked).items()}
    return {
        name: (
            list(one.token_ids),
            [[(token, told.logprob) for token, told in of.items()] for of in one.logprobs or ()],
        )
        for name, one in found.items()
    }


def choose_upstream_backend(llm: Any, backend: Backend) -> None:
    """Make upstream's engine, which knows one backend, start over with another (it runs in this process)."""
    llm.llm_engine.vllm_config.structured_outputs_config.backend = backend
    manager = llm.llm_engine.engine_core.engine_core.structured_output_manager
    manager.backend = manager.backend_name = None  # the latter since 0.33, which refuses a second one
    manager._grammar_bitmask = None


def assert_upstream_backend(llm: Any, backend: Backend) -> None:
    used = type(llm.llm_engine.engine_core.engine_core.structured_output_manager.backend).__name__
    assert used == {"xgrammar": "XgrammarBackend", "guidance": "GuidanceBackend"}[backend]


def faults(llm: Any, job: Job, service: FakeService, tickets: Mapping[str, wire.Ticket]) -> dict[str, Any]:
    """Send one request of every fault among healthy ones, in one batch, then those that draw without them.

    Returns what became of each, and under "without faults" what the second batch gave.
    """
    healthy, plain = corpus()[0], unguided()
    stuck = Request(healthy.prompt, "grammar", DEAD_END, 30)
    known = load_all(job, service, "xgrammar", [stuck])
    early, random = overlong()
    drawn: dict[str, Asked] = {
        "seeded overlong": (random, tickets[early.key], {}),
        "seeded healthy": (healthy, tickets[healthy.key], {}),
        "seeded unguided": (plain, None, {}),
    }
    requests: dict[str, Asked] = drawn | {
        "healthy": (healthy, tickets[healthy.key], {}),
        "unguided": (plain, None, {}),
        "colour": (msgspec.structs.replace(early, params={}), tickets[early.key], {}),
        "overlong": (early, tickets[early.key], {}),
        "no ticket": (healthy, None, {}),
        "not loaded": (healthy, wire.Ticket(key="absent", backend="xgrammar"), {}),
        "dead end": (stuck, known[stuck.key], {}),
        "processor": (plain, None, {ARGUMENT: "fails"}),
        "guided processor": (healthy, tickets[healthy.key], {ARGUMENT: "fails"}),
        "processor: NaN": (plain, None, {ARGUMENT: "nan"}),
        "processor: nothing": (plain, None, {ARGUMENT: "nothing"}),
        "processor: only": (healthy, tickets[healthy.key], {ARGUMENT: "only"}),
    }
    together, without = (in_one_batch(llm, asked) for asked in (requests, drawn))
    answers = {name: answer(output) for name, output in together.items()}
    return answers | {"without faults": {name: answer(output) for name, output in without.items()}}


def in_one_batch(llm: Any, requests: Mapping[str, Asked]) -> dict[str, Any]:
    """Return vLLM's outputs of requests, of those whose name says so at temperature 1 with a seed."""
    params = [sampling(request, ticket, extra) for request, ticket, extra in requests.values()]
    for name, chosen in zip(requests, params, strict=True):
        if name.startswith("seeded"):
            chosen.temperature, chosen.seed = 1.0, 7
    prompts = [request.prompt for request, _, _ in requests.values()]
    found = llm.generate(prompts, params, use_tqdm=False)
    return dict(zip(requests, found, strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Drafts in the matrix: each request's as vLLM counts them, and how many a step asks for."""

from typing import Any

from support.matrix import DRAFTS

# One request's: vLLM's counts of each step, how often it was preempted, how many tokens it came to.
Drafts = dict[str, Any]


def watch(worker: Any) -> None:
    """Begin to note, on a rank, each step's number of draft tokens, and the passes of V2's draft model."""
    runner = worker.model_runner
    speculator = getattr(runner, "speculator", None)
    numbers, passes = worker.draft_numbers, worker.draft_passes = [], []
    execute = runner.execute_model

    def execute_model(scheduled: Any, *arguments: Any, **options: Any) -> Any:
        if scheduled.num_scheduled_tokens:
            numbers.append(scheduled.num_spec_tokens_to_schedule)
        return execute(scheduled, *arguments, **options)

    runner.execute_model = execute_model
    if type(speculator).__name__ != "StandaloneARSpeculator":
        return
    run, propose = speculator._run_model, speculator.propose

    def run_model(*arguments: Any, **options: Any) -> Any:
        passes[-1][1] += 1
        return run(*arguments, **options)

    def proposed(*arguments: Any, num_speculative_tokens: int, **options: Any) -> Any:
        passes.append([num_speculative_tokens, 0])
        return propose(*arguments, num_speculative_tokens=num_speculative_tokens, **options)

    speculator._run_model, speculator.propose = run_model, proposed


def _noted(worker: Any) -> tuple[list[int], list[list[int]]]:
    found: tuple[list[int], list[list[int]]] = worker.draft_numbers, worker.draft_passes
    return found


def noted(llm: Any) -> tuple[list[int], list[list[int]]]:
    """Return how many draft tokens each step so far asked for, and of a draft model with how many passes."""
    found: tuple[list[int], list[list[int]]] = llm.collective_rpc(_noted)[0]
    return found


def counted(output: Any) -> Drafts:
    """Return the drafts of a request that has ended, of its first choice."""
    metrics = output.outputs[0].spec_decode_metrics
    return {
        "preempted": output.metrics.num_preemptions,
        "proposed": metrics.per_step_drafted if metrics else [],
        "accepted": metrics.per_step_accepted if metrics else [],
    }


def lasted(*requests: Drafts) -> bool:
    """Return whether a request was drafted for and never preempted, whoever served it."""
    return all(sum(one["proposed"]) and not one["preempted"] for one in requests)


def by_position(request: Drafts) -> dict[str, list[int]]:
    """Return in how many steps each position was proposed and accepted.

    What V1 accepts of drafts after a text's end is dropped (docs/upstream-quirks.md): it is no proposal.
    """
    accepted = list(map(min, request["proposed"], request["accepted"]))
    return {
        "proposed": [sum(count > place for count in request["proposed"]) for place in range(DRAFTS)],
        "accepted": [sum(count > place for count in accepted) for place in range(DRAFTS)],
    }

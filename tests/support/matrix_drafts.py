"""Each request's drafts in the matrix: proposed and accepted as vLLM counts them, forbidden as ranks do."""

from collections.abc import Sequence
from typing import Any

from support.matrix import DRAFTS

# One request's: vLLM's counts of each step, what the ranks' grammars forbade, how often it was preempted, how
# many tokens of prompt and output it came to, and how many of output.
Drafts = dict[str, Any]


def watch(worker: Any) -> None:
    """Begin to note, on a rank, each request's drafts by step, and each step's number of draft tokens."""
    runner = worker.model_runner
    numbers = worker.draft_numbers = []
    forbidden: dict[str, list[tuple[int, int]]] = {}
    worker.forbidden_drafts = forbidden
    execute = runner.execute_model

    def execute_model(scheduled: Any, *arguments: Any, **options: Any) -> Any:
        if scheduled.num_scheduled_tokens:
            numbers.append(scheduled.num_spec_tokens_to_schedule)
        return execute(scheduled, *arguments, **options)

    runner.execute_model = execute_model
    if not _guides(worker):
        return
    from guided_engine.ranks.sequence import GuidedSequence

    take_sampled = GuidedSequence.take_sampled

    def take(sequence: GuidedSequence, tokens: Sequence[int]) -> None:
        tally = sequence.tally
        forbidden.setdefault(sequence.request_id, []).append((tally.proposed, tally.forbidden))
        take_sampled(sequence, tokens)

    GuidedSequence.take_sampled = take  # type: ignore[method-assign]


def _guides(worker: Any) -> bool:
    """Return whether it is a rank that samples; upstream's is none of ours."""
    return getattr(worker, "_guided", None) is not None


def _numbers(worker: Any) -> list[int]:
    found: list[int] = worker.draft_numbers
    return found


def _forbidden(worker: Any) -> dict[str, list[tuple[int, int]]]:
    if _guides(worker):
        worker._guided._guide.settle()  # a request's last step, which the next one reads, and there was none
    found: dict[str, list[tuple[int, int]]] = worker.forbidden_drafts
    return found


def numbers(llm: Any) -> list[int]:
    """Return how many draft tokens each step so far had proposed for the next one."""
    found: list[int] = llm.collective_rpc(_numbers)[0]
    return found


def counted(llm: Any, outputs: Sequence[Any]) -> list[Drafts]:
    """Return the drafts of requests that have ended, of their first choice."""
    ranks = [rank for rank in llm.collective_rpc(_forbidden) if rank]
    by_request = [{name.partition("-")[0]: steps for name, steps in rank.items()} for rank in ranks]
    found = []
    for output in outputs:
        metrics = output.outputs[0].spec_decode_metrics
        found.append(
            {
                "preempted": output.metrics.num_preemptions,
                "tokens": len(output.prompt_token_ids) + len(output.outputs[0].token_ids),
                "proposed": metrics.per_step_drafted if metrics else [],
                "accepted": metrics.per_step_accepted if metrics else [],
                "ranks": [rank.get(output.request_id, []) for rank in by_request],
            }
        )
    return found


def lasted(*requests: Drafts) -> bool:
    """Return whether a request was drafted for and never preempted, whoever served it."""
    return all(sum(one["proposed"]) and not one["preempted"] for one in requests)


def by_position(request: Drafts) -> dict[str, list[int]]:
    """Return in how many steps each position was proposed, accepted and forbidden.

    What V1 accepts of drafts after a text's end is dropped (docs/upstream-quirks.md): it is no proposal.
    """
    assert all(rank == request["ranks"][0] for rank in request["ranks"])
    steps = request["ranks"][0] if request["ranks"] else []
    accepted = list(map(min, request["proposed"], request["accepted"]))
    return {
        "proposed": [sum(count > place for count in request["proposed"]) for place in range(DRAFTS)],
        "accepted": [sum(count > place for count in accepted) for place in range(DRAFTS)],
        "forbidden": [sum(made - no <= place < made for made, no in steps) for place in range(DRAFTS)],
    }

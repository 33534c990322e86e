"""What the sidecar counts of sequences that ended for their logits processors."""

from guided_contract.records import ProcessorFailure
from guided_sidecar.telemetry.metrics import SidecarMetrics


def failure(rank: int = 0, *processors: str) -> ProcessorFailure:
    return ProcessorFailure(
        rank=rank, processors=[*processors] or ["ban"], code="sequence_processor_no_token"
    )


def test_a_sequence_is_counted_once_as_the_first_of_its_ranks_tells_of_it() -> None:
    metrics = SidecarMetrics(2)
    # The third is another engine core's sequence, which may have the same name.
    for record in (failure(), failure(1), failure(2), failure(0, "ban", "dry")):
        metrics.take(record)
    assert metrics.processor_failures == {"ban": 3, "dry": 1}

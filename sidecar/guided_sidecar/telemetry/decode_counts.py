"""What a rank counts of each sequence, and where it shows: a new count is a line here.

Each is a field of `records.Decode`, an attribute of the span guided.decode, and a metric by rank.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter

from guided_contract.records import Decode
from guided_contract.status import DraftsStatus

_NS_PER_S: Final = 1e9


class DecodeCount(NamedTuple):
    """One count: its value in a record (durations in seconds), and its names."""

    of: Callable[[Decode], int | float]
    attribute: str
    metric: str
    text: str


COUNTS: Final = (
    DecodeCount(
        lambda record: record.tokens,
        "guidedmodel.decode.tokens",
        "guidedmodel_tokens",
        "Tokens of guided sequences",
    ),
    DecodeCount(
        lambda record: record.steps,
        "guidedmodel.decode.steps",
        "guidedmodel_decode_steps",
        "Steps of guided sequences",
    ),
    DecodeCount(
        lambda record: record.fills,
        "guidedmodel.decode.fills",
        "guidedmodel_mask_fills",
        "Token masks computed",
    ),
    DecodeCount(
        lambda record: record.fill_ns / _NS_PER_S,
        "guidedmodel.decode.fill.duration",
        "guidedmodel_mask_fill_seconds",
        "Time spent computing token masks",
    ),
    DecodeCount(
        lambda record: record.exposed_ns / _NS_PER_S,
        "guidedmodel.decode.exposed.duration",
        "guidedmodel_mask_exposed_seconds",
        "Time for which sampling waited for masks, summed over the sequences that waited",
    ),
    DecodeCount(
        lambda record: record.drafts_proposed,
        "guidedmodel.decode.drafts.proposed",
        "guidedmodel_drafts_proposed",
        "Draft tokens proposed for guided sequences",
    ),
    DecodeCount(
        lambda record: record.drafts_accepted,
        "guidedmodel.decode.drafts.accepted",
        "guidedmodel_drafts_accepted",
        "Draft tokens of guided sequences that were accepted",
    ),
    DecodeCount(
        lambda record: record.drafts_forbidden,
        "guidedmodel.decode.drafts.forbidden",
        "guidedmodel_drafts_forbidden",
        "Draft tokens that the grammar did not allow, or that came after one",
    ),
)


class DecodeCounters:
    """The counts as Prometheus' counters, by rank; drafts of all ranks for the status page, too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.drafts = DraftsStatus()
        self._counters = [
            (count, Counter(count.metric, count.text, ("rank",), registry=registry)) for count in COUNTS
        ]

    def take(self, record: Decode) -> None:
        """Add what a record tells; drafts that a processor took none of say nothing of who made them."""
        if record.takes_drafts:
            self.drafts = DraftsStatus(
                proposed=self.drafts.proposed + record.drafts_proposed,
                accepted=self.drafts.accepted + record.drafts_accepted,
                forbidden=self.drafts.forbidden + record.drafts_forbidden,
            )
        for count, counter in self._counters:
            counter.labels(str(record.rank)).inc(count.of(record))


def attributes(record: Decode) -> Iterable[tuple[str, int | float]]:
    """Yield the span's attributes."""
    return ((count.attribute, count.of(record)) for count in COUNTS)

"""What a rank counts of each sequence, and where it shows: a new count is a line here."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from guided_contract.records import Decode
from guided_contract.status import DraftsStatus


class Count(NamedTuple):
    """What a sequence's record says (durations in seconds), and its names: attribute, metric, help."""

    of: Callable[[Decode], float]
    attribute: str
    metric: str
    text: str


# Attributes of guided.decode below `guidedmodel.decode.`, counters by rank below `guidedmodel_`.
COUNTS: Final = (
    Count(lambda r: r.tokens, "tokens", "tokens", "Tokens of guided sequences"),
    Count(lambda r: r.steps, "steps", "decode_steps", "Steps of guided sequences"),
    Count(lambda r: r.fills, "fills", "mask_fills", "Token masks computed"),
    Count(
        lambda r: r.fill_ns / 1e9, "fill.duration", "mask_fill_seconds", "Time spent computing token masks"
    ),
    Count(
        lambda r: r.exposed_ns / 1e9,
        "exposed.duration",
        "mask_exposed_seconds",
        "Time for which sampling waited for masks, summed over the sequences that waited",
    ),
    Count(
        lambda r: r.drafts_proposed,
        "drafts.proposed",
        "drafts_proposed",
        "Draft tokens proposed for guided sequences",
    ),
    Count(
        lambda r: r.drafts_accepted,
        "drafts.accepted",
        "drafts_accepted",
        "Draft tokens of guided sequences that were accepted",
    ),
    Count(
        lambda r: r.drafts_forbidden,
        "drafts.forbidden",
        "drafts_forbidden",
        "Draft tokens that the grammar did not allow, or that came after one",
    ),
)


def attributes(record: Decode) -> Iterable[tuple[str, float]]:
    """Yield the span's attributes."""
    return ((f"guidedmodel.decode.{count.attribute}", count.of(record)) for count in COUNTS)


def with_drafts(drafts: DraftsStatus, record: Decode) -> DraftsStatus:
    """Add a sequence's drafts; those that a processor took none of say nothing of who made them."""
    if not record.takes_drafts:
        return drafts
    return msgspec.structs.replace(
        drafts,
        proposed=drafts.proposed + record.drafts_proposed,
        accepted=drafts.accepted + record.drafts_accepted,
        forbidden=drafts.forbidden + record.drafts_forbidden,
    )

"""What an admitted request carries to the ranks, in `sampling_params.extra_args`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from guided_contract.names import TICKET_ARG, TRACE_ARG
from guided_contract.trace_context import Trace
from guided_contract.wire import Ticket


def ticket_of(extra_args: Mapping[str, Any] | None) -> Ticket | None:
    """Return the ticket that admission wrote, None where there is none or it is not well formed."""
    written = (extra_args or {}).get(TICKET_ARG)
    if written is None:
        return None
    try:
        return msgspec.convert(written, Ticket)
    except msgspec.ValidationError:
        return None


def trace_of(extra_args: Mapping[str, Any]) -> Trace:
    """Return where the span of an unguided request stands; nowhere where admission did not say."""
    try:
        return msgspec.convert(extra_args.get(TRACE_ARG) or {}, Trace)
    except msgspec.ValidationError:
        return Trace()

"""The ticket of an admitted request, as it travels in `sampling_params.extra_args`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from guided_contract.names import TICKET_ARG
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

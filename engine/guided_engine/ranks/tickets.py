"""What an admitted request carries to the ranks, in `sampling_params.extra_args`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from guided_contract.names import TICKET_ARG
from guided_contract.wire import Ticket


def ticket_of(extra_args: Mapping[str, Any] | None) -> Ticket | None:
    """Return the ticket that admission wrote, None where there is none or it is not well formed."""
    try:
        return msgspec.convert((extra_args or {}).get(TICKET_ARG), Ticket)
    except msgspec.ValidationError:
        return None

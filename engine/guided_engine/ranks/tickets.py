"""What an admitted request carries to the ranks, in `sampling_params.extra_args`."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from guided_contract.names import TICKET_ARG, TRACE_ARG
from guided_contract.trace_context import Trace
from guided_contract.wire import Ticket

_T = TypeVar("_T")


def ticket_of(extra_args: Mapping[str, Any] | None) -> Ticket | None:
    """Return the ticket that admission wrote, None where there is none or it is not well formed."""
    return _read((extra_args or {}).get(TICKET_ARG), Ticket)


def trace_of(extra_args: Mapping[str, Any]) -> Trace:
    """Return where the span of an unguided request stands; nowhere where admission did not say."""
    return _read(extra_args.get(TRACE_ARG), Trace) or Trace()


def _read(written: Any, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(written, kind)
    except msgspec.ValidationError:
        return None

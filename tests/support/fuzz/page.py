"""A sidecar's status page, which a tenant's pod serves and the operator reads."""

from typing import Final

from guided_contract import status
from guided_contract.status import PodStatus, RankStatus
from guided_contract.wire import Patch
from support.fuzz import mutation
from support.fuzz.target import Target

_PAGE: Final = PodStatus(
    ready=False,
    reason="RanksMissing",
    ranks=[RankStatus(rank=0, state="Missing")],
    patches=[Patch(name="p", state="Skipped")],
)


def target() -> Target:
    """Return the target."""
    return Target([status.encode(_PAGE)], mutation.either(mutation.json_value), _run)


def _run(data: bytes) -> None:
    try:
        page = status.decode(data)
    except ValueError:
        return
    assert status.decode(status.encode(page)) == page

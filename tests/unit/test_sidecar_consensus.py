"""What the sidecar makes of the ranks' digests."""

from typing import Any

import pytest

from guided_contract.records import Digest, Digests
from guided_contract.wire import End, Failed, ServiceMessage
from guided_sidecar.ranks.agreement import PATIENCE_S, SHOWN_S, Agreement


class Api:
    def __init__(self) -> None:
        self.told: list[ServiceMessage] = []

    def send(self, message: ServiceMessage) -> None:
        self.told.append(message)


class Pod:
    """A agreement of so many ranks with one API server, on a clock of its own."""

    def __init__(self, ranks: int = 2) -> None:
        self.now_s = 1000.0
        self.api = Api()
        self.agreement = Agreement(ranks, lambda: self.now_s)
        self.agreement.connect(self.api)

    def say(self, rank: int, digest: int, *, request: str = "r", number: int = 0, position: int = 0) -> None:
        sent = Digest(request_id=request, number=number, position=position, digest=digest)
        self.agreement.receive(Digests(rank=rank, digests=[sent]))


ENDED = End(request_id="r", code="ranks_desynchronized")


def test_equal_digests_are_counted_and_forgotten() -> None:
    pod = Pod()
    for number in range(3):
        pod.say(0, 7, number=number)
        pod.say(1, 7, number=number)
    assert pod.agreement.state.compared == 3
    pod.now_s += 10 * PATIENCE_S
    assert pod.agreement.state.lost == 0
    assert not pod.agreement.state.desyncs
    assert not pod.api.told


@pytest.mark.parametrize("other", [{"digest": 8}, {"digest": 7, "position": 1}])
def test_a_difference_ends_the_request_once_and_counts_where_two_ranks_cannot_tell(other: Any) -> None:
    pod = Pod()
    pod.say(0, 7)
    pod.say(0, 9, number=1)
    before = pod.agreement.state
    pod.say(1, **other)
    pod.say(1, 10, number=1)
    pod.say(0, 11, number=2)
    assert pod.api.told == [ENDED]
    state = pod.agreement.state
    assert state.desyncs == {0: 1, 1: 1}
    assert "(rank 0: 1, rank 1: 1)" in state.message
    assert (before.desyncs, before.message) == ({}, "")  # a page made of it says one thing
    pod.now_s += 10 * PATIENCE_S
    assert pod.agreement.state.lost == 0


def test_of_more_ranks_the_one_that_differs_counts() -> None:
    pod = Pod(ranks=4)
    for rank, digest in enumerate((7, 7, 8, 7)):
        pod.say(rank, digest)
    assert pod.agreement.state.desyncs == {2: 1}


def test_a_lost_digest_is_counted_and_no_desync() -> None:
    pod = Pod()
    pod.say(0, 7)
    pod.say(0, 8, number=1)
    pod.say(1, 8, number=1)
    assert pod.agreement.state.lost == 0
    pod.now_s += PATIENCE_S
    state = pod.agreement.state
    assert (state.lost, state.compared, state.message) == (1, 1, "")
    assert not pod.api.told


def test_other_requests_go_on() -> None:
    pod = Pod()
    pod.say(0, 7)
    pod.say(1, 8)
    pod.say(0, 5, request="other")
    pod.say(1, 5, request="other")
    assert pod.api.told == [ENDED]
    assert pod.agreement.state.compared == 2


def test_failing_the_request_alone_shows_for_a_while() -> None:
    pod = Pod()
    pod.say(0, 7)
    pod.say(1, 8)
    pod.now_s += SHOWN_S - 1
    assert "the affected requests were ended" in pod.agreement.state.message
    pod.now_s += 1
    assert pod.agreement.state.message == ""
    assert pod.agreement.state.desyncs == {0: 1, 1: 1}


def test_what_a_rank_gives_up_ends_once_and_is_no_desync() -> None:
    pod = Pod()
    pod.say(0, 7)
    for _ in range(2):
        pod.agreement.fail(Failed(request_id="r", code="sequence_matcher_failed"))
    pod.say(0, 9, number=1)
    assert pod.api.told == [End(request_id="r", code="sequence_matcher_failed")]
    pod.now_s += PATIENCE_S
    state = pod.agreement.state
    assert (state.lost, state.desyncs, state.message) == (0, {}, "")

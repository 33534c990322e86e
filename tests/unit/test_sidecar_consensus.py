"""What the sidecar makes of the ranks' digests."""

from typing import Any

import pytest

from guided_contract.records import Digest, Digests
from guided_contract.wire import End, Failed, ServiceMessage
from guided_sidecar.ranks.agreement import PATIENCE_S, SHOWN_S, Agreement


class Pod:
    """An agreement of so many ranks with one API server, which it is itself, on a clock of its own."""

    def __init__(self, ranks: int = 2) -> None:
        self.now_s = 1000.0
        self.told: list[ServiceMessage] = []
        self.agreement = Agreement(ranks, lambda: self.now_s)
        self.agreement.connect(self)

    def send(self, message: ServiceMessage) -> None:
        self.told.append(message)

    def say(self, rank: int, digest: int, request: str = "r", number: int = 0, position: int = 0) -> None:
        sent = Digest(request_id=request, number=number, position=position, digest=digest)
        self.agreement.receive(Digests(rank=rank, digests=[sent]))


@pytest.fixture
def pod() -> Pod:
    return Pod()


ENDED = End(request_id="r", code="ranks_desynchronized")


def test_equal_digests_are_counted_and_forgotten(pod: Pod) -> None:
    for number in range(3):
        pod.say(0, 7, number=number)
        pod.say(1, 7, number=number)
    pod.now_s += 10 * PATIENCE_S
    state = pod.agreement.state
    assert (state.compared, state.lost, state.desyncs, pod.told) == (3, 0, {}, [])


@pytest.mark.parametrize("other", [{"digest": 8}, {"digest": 7, "position": 1}])
def test_a_difference_ends_its_request_alone_and_once_and_shows_for_a_while(pod: Pod, other: Any) -> None:
    """Where two ranks cannot tell which of them is wrong, both count."""
    pod.say(0, 7)
    pod.say(0, 9, number=1)
    pod.say(1, **other)
    pod.say(1, 10, number=1)
    pod.say(0, 11, number=2)
    for rank in range(2):
        pod.say(rank, 5, request="other")
    assert pod.told == [ENDED]
    assert pod.agreement.state.compared == 2
    pod.now_s += SHOWN_S - 1
    state = pod.agreement.state
    assert state.desyncs == {0: 1, 1: 1}
    assert "(rank 0: 1, rank 1: 1)" in state.message
    assert "the affected requests were ended" in state.message
    pod.now_s += 1
    state = pod.agreement.state
    assert (state.message, state.desyncs, state.lost) == ("", {0: 1, 1: 1}, 0)


def test_of_more_ranks_the_one_that_differs_counts() -> None:
    pod = Pod(ranks=4)
    for rank, digest in enumerate((7, 7, 8, 7)):
        pod.say(rank, digest)
    assert pod.agreement.state.desyncs == {2: 1}


def test_a_lost_digest_is_counted_and_no_desync(pod: Pod) -> None:
    pod.say(0, 7)
    pod.say(0, 8, number=1)
    pod.say(1, 8, number=1)
    assert pod.agreement.state.lost == 0
    pod.now_s += PATIENCE_S
    state = pod.agreement.state
    assert (state.lost, state.compared, state.message, pod.told) == (1, 1, "", [])


def test_what_a_rank_gives_up_ends_once_and_is_no_desync(pod: Pod) -> None:
    pod.say(0, 7)
    for _ in range(2):
        pod.agreement.fail(Failed(request_id="r", code="sequence_matcher_failed"))
    pod.say(0, 9, number=1)
    assert pod.told == [End(request_id="r", code="sequence_matcher_failed")]
    pod.now_s += PATIENCE_S
    state = pod.agreement.state
    assert (state.lost, state.desyncs, state.message) == (0, {}, "")

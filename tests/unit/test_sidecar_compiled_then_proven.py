"""A grammar between compiled and proven: who may begin with it, and what is left of one that is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Failed, Load, Loaded, Prepared, Proven, Refused, Release
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.worker_messages import Compiled, Done
from support.played import settled
from support.played_service import ASKED, PlayedService
from support.spans import error_code

FIRST = Done(backend="xgrammar", spec="first")
OTHER = Done(backend="guidance", spec="other")
REFUSAL = worker_messages.refusal(GuidedError(ErrorCode.GRAMMAR_DEAD_END, "$: no way out", path="$"))


@pytest.fixture
async def service(tmp_path: Path) -> PlayedService:
    return PlayedService(tmp_path)


def early(number: int, service: PlayedService, backend: Any = "xgrammar") -> Prepared:
    return Prepared(id=number, key=service.key, backend=backend, is_proven=False)


async def test_a_request_may_begin_when_ranks_have_loaded_and_is_told_of_the_proof(
    service: PlayedService,
) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    assert service.api.sent == [early(1, service)]
    await service.pool.ends(FIRST)
    assert service.api.sent[1:] == [Proven(id=1, backend="xgrammar")]
    assert len(service.rank.sent) == 1, "what is loaded already is not loaded again"
    assert service.preparer.state.leases == 1


async def test_others_join_before_the_proof_and_nobody_gets_it_from_the_cache(service: PlayedService) -> None:
    await service.asks(1)
    await service.pool.compiled(FIRST)
    other = service.connect_api()
    await service.asks(5, other)
    assert other.sent == [early(5, service)]
    assert service.preparer.state.entries == 0
    await service.pool.ends(FIRST)
    assert (service.api.sent[-1], other.sent[-1]) == (
        Proven(id=1, backend="xgrammar"),
        Proven(id=5, backend="xgrammar"),
    )
    await service.asks(6, other)
    assert other.sent[-1] == Prepared(id=6, key=service.key, backend="xgrammar")
    assert len(service.pool.jobs) == 1


async def test_a_proof_that_refuses_takes_the_grammar_back_from_ranks(service: PlayedService) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    assert service.api.sent == [early(1, service)]
    await service.pool.ends(REFUSAL)
    assert isinstance(refused := service.api.sent[-1], Refused)
    assert (refused.code, refused.path) == ("grammar_dead_end", "$")
    assert not service.loaded()
    state = service.preparer.state
    assert (state.entries, state.leases) == (0, 0)
    await service.asks(2)
    assert isinstance(service.api.sent[-1], Refused)
    assert len(service.pool.jobs) == 1, "a refusal is remembered"
    assert error_code(service.spans.named("grammar.prepare")[0]) == "grammar_dead_end"


async def test_another_library_takes_the_place_of_one_that_the_proof_refused(service: PlayedService) -> None:
    await service.asks(1)
    await service.pool.compiled(FIRST)
    await service.pool.compiled(OTHER)
    await service.asks(2)
    assert service.api.sent == [early(1, service), early(2, service, "guidance")]
    assert service.loaded() == ["other"]
    await service.pool.ends(OTHER)
    assert service.api.sent[2:] == [Proven(id=1, backend="guidance"), Proven(id=2, backend="guidance")]
    assert service.loaded() == ["other"]


@pytest.mark.parametrize(
    "leaves", [lambda api: api.session.receive(Release(id=1)), lambda api: api.session.closed()]
)
async def test_the_last_who_leaves_before_the_proof_ends_it(service: PlayedService, leaves: Any) -> None:
    await service.asks()
    await service.pool.compiled(FIRST)
    leaves(service.api)
    await settled()
    assert service.pool.ended == 1
    assert not service.loaded()
    state = service.preparer.state
    assert (state.entries, state.leases) == (0, 0)
    # And whoever asks anew gets a flight of its own.
    other = service.connect_api()
    await service.asks(1, other)
    await service.pool.compiled(FIRST)
    await service.pool.ends(FIRST)
    assert other.sent == [early(1, service), Proven(id=1, backend="xgrammar")]
    assert service.loaded() == ["first"]


async def test_a_given_up_flight_takes_nothing_from_the_next_of_its_key(service: PlayedService) -> None:
    """Its worker takes a while to die, and may still say something."""
    await service.asks()
    await service.pool.compiled(FIRST)
    late = service.pool.progress
    assert late is not None
    service.pool.may_die.clear()
    service.api.session.receive(Release(id=1))
    other = service.connect_api()
    other.session.receive(ASKED)
    await settled()
    await service.pool.compiled(OTHER)
    late.tell(Compiled(done=FIRST))
    service.pool.may_die.set()
    await settled()
    assert service.pool.ended == 1
    assert service.loaded() == ["other"]
    await service.pool.ends(OTHER)
    assert other.sent == [early(1, service, "guidance"), Proven(id=1, backend="guidance")]
    assert service.loaded() == ["other"]


async def test_a_rank_that_cannot_load_it_is_asked_again_when_it_is_proven(service: PlayedService) -> None:
    errors = ["no room", ""]
    service.rank.answer = lambda sent: (
        Loaded(key=sent.key, error=errors.pop(0)) if isinstance(sent, Load) else None
    )
    await service.asks()
    await service.pool.compiled(FIRST)
    assert not service.api.sent
    await service.pool.ends(FIRST)
    assert service.api.sent == [Prepared(id=1, key=service.key, backend="xgrammar")]


@pytest.mark.parametrize("when", ["before the proof", "in the cache"])
async def test_a_rank_that_finds_it_slow_is_believed(service: PlayedService, when: str) -> None:
    """Each of its sequences would hold up the rank once."""
    await service.asks()
    await service.pool.compiled(FIRST)
    if when == "in the cache":
        await service.pool.ends(FIRST)
    for key in ("never heard of", service.key):
        service.rank.session.receive(Failed(request_id="r", code="sequence_slow", key=key))
    if when == "before the proof":
        await service.pool.ends(FIRST)
    await service.asks(2)
    assert isinstance(refused := service.api.sent[-1], Refused)
    assert refused.code == "grammar_slow"


async def test_what_a_rank_can_load_no_more_is_compiled_again(service: PlayedService) -> None:
    """Also where a named grammar or a long answer holds it: its file may be damaged."""
    await service.asks()
    await service.pool.ends(FIRST)
    errors = ["damaged", "damaged"]
    service.rank.answer = lambda sent: (
        Loaded(key=sent.key, error=errors.pop() if errors else "") if isinstance(sent, Load) else None
    )
    service.load_barrier.connect(0, service.rank, service.rank.hello)
    await service.asks(2)
    assert isinstance(refused := service.api.sent[-1], Refused)
    assert refused.code == "grammar_load_failed"
    await service.asks(3)
    await service.pool.ends(OTHER)
    assert (service.api.sent[-1], service.preparer.state.leases) == (
        Prepared(id=3, key=service.key, backend="guidance"),
        2,
    )
    for number in (1, 3):
        service.api.session.receive(Release(id=number))
    assert (service.preparer.state.entries, service.preparer.state.leases) == (1, 0)


async def test_who_asks_as_a_rank_cannot_load_it_is_told_and_keeps_no_lease(service: PlayedService) -> None:
    """It waited for a load that had been taken back, and the next compile of the key broke its request."""
    await service.asks()
    await service.pool.ends(FIRST)
    service.api.session.receive(Release(id=1))
    service.rank.answer = lambda _sent: None
    service.load_barrier.connect(0, service.rank, service.rank.hello)
    await service.asks(2)
    service.api.session.receive(msgspec.structs.replace(ASKED, id=3))
    service.rank.session.receive(Loaded(key=service.key, error="damaged"))  # in the same turn
    await settled()
    assert [(one.id, one.code) for one in service.api.sent[-2:]] == [
        (2, "grammar_load_failed"),
        (3, "grammar_load_failed"),
    ]
    assert service.preparer.state.leases == 0

"""How many requests may wait for their grammars: as many as fit."""

from guided_sidecar.socket.sessions import Room


def test_what_waits_is_bounded_in_bytes() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    room.give(60)
    assert room.take(60)


def test_a_request_that_is_alone_always_has_room() -> None:
    room = Room(100)
    assert room.take(1000)
    assert not room.take(1)
    room.give(1000)
    assert room.take(1)

"""A rank's link to the sidecar's service, over a real socket."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guided_contract import wire
from guided_contract.wire import Failed, Hello, Load, Loaded
from guided_engine import service_link
from guided_engine.service_link import ServiceLink
from support.engine import wait_until
from support.fake_service import FakeService


class TestLink:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "service.sock"

    @staticmethod
    @contextlib.contextmanager
    def linked(path: Path, answer: Any, lost: Any = lambda: None) -> Iterator[ServiceLink]:
        link = ServiceLink(path, lambda: Hello(role="rank", pid=1, boot="b", rank=0), answer, lost)
        link.start()
        try:
            yield link
        finally:
            link.stop()
            assert not link._thread.is_alive()

    def test_what_is_loaded_for_a_service_that_has_gone_is_lost_with_it(self, path: Path) -> None:
        """Else it would stay for ever: the next one does not know of it."""
        done: list[str] = []
        gone = threading.Event()

        def answer(message: Any) -> Loaded:
            gone.wait(30)
            done.append(message.key)
            return Loaded(key=message.key)

        with FakeService(path) as service, self.linked(path, answer, lambda: done.append("lost")):
            wait_until(lambda: service.peers("rank"))
            for key in ("worked on", "waits"):
                service.peers("rank")[0].send(Load(key=key, backend="guidance", spec="s"))
            service.stop()
            gone.set()
            wait_until(lambda: "lost" in done)
            service.start()
        assert list(dict.fromkeys(done)) == ["worked on", "lost"]

    def test_no_message_is_lost_when_the_service_goes_while_the_rank_loads(self, path: Path) -> None:
        loading, gone = threading.Event(), threading.Event()

        def answer(_message: Any) -> None:
            loading.set()
            gone.wait(30)

        with FakeService(path) as service, self.linked(path, answer) as link:
            wait_until(lambda: service.peers("rank"))
            service.peers("rank")[0].send(Load(key="k", backend="guidance", spec="s"))
            assert loading.wait(30)
            service.stop()
            for number in range(3):
                link.send(Failed(request_id=str(number), code="c"))
            service.start()
            gone.set()
            service.wait_for(Failed, lambda one: one.request_id == "2")
            assert [one.request_id for one in service.received(Failed)] == ["0", "1", "2"]

    def test_sending_never_waits_and_is_bounded(self, path: Path) -> None:
        with self.linked(path, lambda _: None) as link:
            for number in range(2 * service_link.MAX_UNSENT):
                link.send(Failed(request_id=str(number), code="c"))
            with FakeService(path) as service:
                last = str(2 * service_link.MAX_UNSENT - 1)
                service.wait_for(Failed, lambda one: one.request_id == last)
                assert len(service.received(Failed)) == service_link.MAX_UNSENT

    def test_survives_nonsense_and_its_own_faults(self, path: Path) -> None:
        def answer(_message: Any) -> None:
            raise RuntimeError("a fault of ours")

        with FakeService(path) as service, self.linked(path, answer):
            service.wait_for(Hello)
            service.peers("rank")[0].send(Load(key="k", backend="guidance", spec=""))
            wait_until(lambda: len(service.received(Hello)) == 2)
            wait_until(lambda: service.peers("rank"))
            with contextlib.suppress(OSError):
                service.peers("rank")[-1]._connection.sendall(wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1))
            wait_until(lambda: len(service.received(Hello)) == 3)

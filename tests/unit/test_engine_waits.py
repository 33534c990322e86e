"""How long sampling waits for masks, by the host's clock and by a device's."""

from guided_engine.ranks.mask_wait import DeviceWaits


class Device:
    """Works in its own time: marks are passed in order, each at the moment that the test gives."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def make(self) -> "Event":
        return Event(self)

    def reach(self, *at_ms: float) -> None:
        for event, moment in zip(self.events, at_ms, strict=True):
            event.at_ms = moment
        self.events.clear()


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.at_ms: float | None = None

    def record(self) -> None:
        self.at_ms = None
        self._device.events.append(self)

    def query(self) -> bool:
        return self.at_ms is not None

    def elapsed_time(self, later: "Event") -> float:
        assert self.at_ms is not None
        assert later.at_ms is not None
        return later.at_ms - self.at_ms


def test_on_a_device_only_its_own_waiting_counts_and_is_read_when_it_is_known() -> None:
    device = Device()
    waits = DeviceWaits(device.make)
    waits.begin()
    waits.end()
    first, device.events = device.events, []
    waits.begin()  # the device is still busy: nobody waits for it
    assert waits.total_ns == 0
    waits.end()
    first[0].at_ms, first[1].at_ms = 10.0, 12.5  # idle from the forward pass's end until the masks
    device.reach(20.0, 20.0)
    waits.begin()
    assert waits.total_ns == 2_500_000

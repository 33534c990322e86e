"""Prometheus' text format, version 0.0.4: the three kinds of metric that the operator has, and their page.

The operator's image has no client library of Prometheus, and this is all that it would use of one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class About(NamedTuple):
    """A metric's name, as queries use it, what it says, and the names of its labels."""

    name: str
    text: str
    labels: Labels = ()


class Metric(Protocol):
    """One metric family."""

    about: About

    @property
    def kind(self) -> str:
        """Prometheus' word for what it is."""

    def lines(self) -> Iterator[str]:
        """Yield its samples."""


class Counter:
    """Counts; `known` are label sets that stand at 0 from the start, for increase() misses a first value."""

    kind = "counter"

    def __init__(self, about: About, known: Iterable[Labels] = ()) -> None:
        self.about = about
        self._values: dict[Labels, float] = dict.fromkeys(known if about.labels else [()], 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count."""
        self._values[labels] = self._values.get(labels, 0.0) + by

    def lines(self) -> Iterator[str]:
        """Yield a sample for each label set."""
        return _samples(self.about, self._values)


class Reading:
    """A gauge, or a counter that somebody else keeps: read when the page is."""

    def __init__(
        self,
        about: About,
        read: Callable[[], Mapping[Labels, float]],
        kind: Literal["gauge", "counter"] = "gauge",
    ) -> None:
        self.about = about
        self.kind = kind
        self._read = read

    def lines(self) -> Iterator[str]:
        """Yield a sample for each label set that is read."""
        return _samples(self.about, self._read())


class Histogram:
    """Counts values below bounds."""

    kind = "histogram"

    def __init__(self, about: About, bounds: Sequence[float], known: Iterable[Labels] = ()) -> None:
        self.about = about
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        for labels in known if about.labels else [()]:
            self._start(labels)

    def observe(self, value: float, *labels: str) -> None:
        """Count a value."""
        if labels not in self._counts:
            self._start(labels)
        self._counts[labels][bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def lines(self) -> Iterator[str]:
        """Yield each label set's buckets, sum and count."""
        name, _, names = self.about
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=True):
                total += count
                yield f"{name}_bucket{_braces((*names, 'le'), (*labels, bound))} {total}"
            yield f"{name}_sum{_braces(names, labels)} {_number(self._sums[labels])}"
            yield f"{name}_count{_braces(names, labels)} {total}"

    def _start(self, labels: Labels) -> None:
        self._counts[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0


def page(metrics: Iterable[Metric]) -> str:
    """Return the page that Prometheus scrapes."""
    lines: list[str] = []
    for metric in metrics:
        text = metric.about.text.replace("\\", r"\\").replace("\n", r"\n")
        lines += (f"# HELP {metric.about.name} {text}", f"# TYPE {metric.about.name} {metric.kind}")
        lines += metric.lines()
    return "\n".join(lines) + "\n"


def _samples(about: About, values: Mapping[Labels, float]) -> Iterator[str]:
    for labels, value in values.items():
        yield f"{about.name}{_braces(about.labels, labels)} {_number(value)}"


def _braces(names: Labels, values: Labels) -> str:
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}" if names else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

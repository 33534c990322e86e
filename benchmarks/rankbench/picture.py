"""The picture of a run: one figure of each mode in each cell, as SVG."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from rankbench import statistics
from rankbench.bars import Records
from rankbench.cells import BASELINE
from rankbench.records import Record

_BAR: Final = 14  # pixels
_GAP: Final = 26
_LEFT: Final = 210
_WIDTH: Final = 420
_COLOURS: Final = {"unguided": "#8a8f98", "upstream": "#c2703d", "ours": "#2b6cb0"}


Figure = Callable[[Record, Mapping[str, Record]], float]  # of a record among those of its cell


def gpu_busy(records: Records) -> str:
    """Return the share of time for which the GPU is busy."""
    return _svg(
        records, "share of time the GPU is busy", lambda record, _: statistics.mean(record.gpu_busy).value
    )


def of_unguided(records: Records) -> str:
    """Return tokens a second as a share of the unguided ones, which are async."""

    def figure(record: Record, modes: Mapping[str, Record]) -> float:
        return statistics.paired_ratio(record.tokens_per_s, modes[BASELINE.name].tokens_per_s).value

    compared = {cell: modes for cell, modes in records.items() if _has_baseline(modes)}
    return _svg(compared, "tokens a second; unguided with async scheduling = 1", figure)


def _has_baseline(modes: Mapping[str, Record]) -> bool:
    return BASELINE.name in modes and bool(modes[BASELINE.name].tokens_per_s)


def _svg(records: Records, title: str, figure: Figure) -> str:
    """Return a horizontal bar per mode, grouped by cell."""
    body = list(_groups(records, figure))
    height = _GAP + sum(size for _, size in body)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
    )
    parts = [
        head,
        '<rect width="100%" height="100%" fill="white"/>',
        _text(4, 14, title),
    ]
    top = _GAP
    for bars, size in body:
        parts += _placed(bars, top)
        top += size
    return "\n".join([*parts, "</svg>"]) + "\n"


def _groups(records: Records, figure: Figure) -> Iterator[tuple[list[tuple[str, float | None]], int]]:
    """Yield a cell's title and bars, and the pixels that they take."""
    for cell, modes in records.items():
        bars: list[tuple[str, float | None]] = [(cell, None)]
        bars += [(r.mode, figure(r, modes)) for r in modes.values() if r.tokens_per_s]
        yield bars, len(bars) * _BAR + _BAR


def _placed(bars: Sequence[tuple[str, float | None]], top: int) -> Iterator[str]:
    for number, (name, busy) in enumerate(bars):
        y = top + number * _BAR
        if busy is None:
            yield _text(4, y + 10, name, bold=True)
            continue
        colour = next(colour for start, colour in _COLOURS.items() if name.startswith(start))
        yield _text(14, y + 10, name)
        size = f'width="{_WIDTH * busy:.0f}" height="{_BAR - 3}"'
        yield f'<rect x="{_LEFT}" y="{y + 1}" {size} fill="{colour}"/>'
        yield _text(_LEFT + _WIDTH * busy + 4, y + 10, f"{busy:.2f}")


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{weight}>{escape(text)}</text>'

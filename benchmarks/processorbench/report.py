"""What a run found: its records, its tables and its bars."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from judged import Bar, table
from rankbench.statistics import paired_ratio

from processorbench.cells import LOOP, NONE, UNUSED, Spent

_DRY_MS: Final = 4.0
_TIMES_BIAS: Final = 1.1
_MOST_BYTES: Final = 16 << 20
_MIDDLE: Final = "k3-b64"
_LARGE: Final = "k3-b256"


class Found(msgspec.Struct):
    """One cell; a value per repetition, paired by index.

    `host`: by mode and part of a step. `cpu`: microseconds by mode and way, of V1 on a CPU's logits;
    `device`: by way. `ids`: of a step, by mode. `device_bytes`: what EditsV2 holds on the device.
    """

    cell: str
    device: str
    device_bytes: int = 0
    host: dict[str, dict[str, list[Spent]]] = {}
    ids: dict[str, int] = {}
    cpu: dict[str, dict[str, list[float]]] = {}
    device_us: dict[str, list[float]] = {}


def bars(found: Sequence[Found]) -> list[Bar]:
    """Judge a run."""
    by_name = {one.cell: one for one in found}
    return [
        _dry(by_name.get(_MIDDLE)),
        _to_bias(by_name.get(_MIDDLE)),
        _memory(by_name.get(_LARGE)),
        *(_unused(one) for one in found),
    ]


def lines(found: Sequence[Found]) -> list[str]:
    """Return the run's page."""
    return [*_host(found), "", *_steps(found), "", *_cpu(found), "", *_device(found), "", *table(bars(found))]


def _dry(one: Found | None) -> Bar:
    asks = f"{_MIDDLE}: DRY's prepare <= {_DRY_MS:g} ms of one thread's CPU"
    if one is None:
        return Bar(asks, "not measured", None)
    wall, cpu = _middle(one.host["DRY"]["prepare"])
    return Bar(asks, f"{cpu / 1e3:.2f} ms ({wall / 1e3:.2f} as others let it)", cpu <= 1e3 * _DRY_MS)


def _to_bias(one: Found | None) -> Bar:
    asks = f"{_MIDDLE}: upload and kernel <= {_TIMES_BIAS:g} times logit_bias's kernel"
    if one is None or one.device != "cuda":
        return Bar(asks, "not measured: no CUDA", None)
    ratio = paired_ratio(one.device_us["ours, adding"], one.device_us["logit_bias"])
    return Bar(asks, _ratio(ratio), ratio.value <= _TIMES_BIAS)


def _memory(one: Found | None) -> Bar:
    asks = f"{_LARGE}: edits hold at most {_MOST_BYTES >> 20} MiB on the device"
    if one is None:
        return Bar(asks, "not measured", None)
    return Bar(asks, f"{one.device_bytes / 2**20:.1f} MiB", one.device_bytes <= _MOST_BYTES)


def _unused(one: Found) -> Bar:
    """Judge that a cost, if there is one, lies within the bounds."""
    asks = f"{one.cell}: a step costs nothing measurable where no request has a processor"
    ratio = paired_ratio(*(_wholes(one, name) for name in (UNUSED.name, NONE.name)))
    return Bar(asks, _ratio(ratio), ratio.low <= 1)


def _host(found: Sequence[Found]) -> Iterator[str]:
    yield "| host, us of a step (of it CPU) | ids in it | prepare | rest of edits | stage | accept |"
    yield "|---|---|---|---|---|---|"
    for one in found:
        for name, parts in one.host.items():
            if name in {NONE.name, UNUSED.name}:
                continue
            rest = [Spent(a.wall - b.wall, a.cpu - b.cpu) for a, b in _pairs(parts, "edits", "prepare")]
            spent = (parts["prepare"], rest, parts["stage"], parts["accept"])
            cells = (f"{wall:.0f} ({cpu:.0f})" for wall, cpu in map(_middle, spent))
            yield f"| {one.cell}, {name} | {one.ids[name]} | {' | '.join(cells)} |"


def _steps(found: Sequence[Found]) -> Iterator[str]:
    yield "| a step of guided requests, us of CPU | no processors | none chosen | ratio | of it ours |"
    yield "|---|---|---|---|---|"
    for one in found:
        whole = {name: _wholes(one, name) for name in (NONE.name, UNUSED.name)}
        ratio = _ratio(paired_ratio(whole[UNUSED.name], whole[NONE.name]))
        own = [_middle(one.host[UNUSED.name][part]).wall for part in ("edits", "stage")]
        less = _middle(one.host[NONE.name]["edits"]).wall
        cells = [f"{statistics.median(values):.0f}" for values in whole.values()]
        yield f"| {one.cell} | {' | '.join(cells)} | {ratio} | {sum(own):.0f}, without {less:.0f} |"


def _cpu(found: Sequence[Found]) -> Iterator[str]:
    yield "| V1 on a CPU, one thread | ours, us | over a loop of torch over rows |"
    yield "|---|---|---|"
    for one in found:
        for name, ways in one.cpu.items():
            ratio = "-"
            if LOOP in ways:
                ratio = _ratio(paired_ratio(ways["ours"], ways[LOOP]))
            yield f"| {one.cell}, {name} | {statistics.median(ways['ours']):.0f} | {ratio} |"


def _device(found: Sequence[Found]) -> Iterator[str]:
    if not any(one.device_us for one in found):
        yield "The device part was not measured: there is no CUDA here."
        return
    if found[0].device == "cpu":
        yield "The device part ran in Triton's interpreter: its times mean nothing.\n"
    yield f"| device, us | {' | '.join(found[0].device_us)} |"
    yield f"|---|{'---|' * len(found[0].device_us)}"
    for one in found:
        cells = (f"{statistics.median(values):.0f}" for values in one.device_us.values())
        yield f"| {one.cell} | {' | '.join(cells)} |"


def _pairs(parts: dict[str, list[Spent]], *names: str) -> list[tuple[Spent, ...]]:
    return list(zip(*(parts[name] for name in names), strict=True))


def _wholes(one: Found, mode: str) -> list[float]:
    """Return the CPU of each whole step, in microseconds, less what only the benchmark asked for."""
    parts = [values for part, values in one.host[mode].items() if part != "prepare"]
    return [sum(spent.cpu for spent in each) for each in zip(*parts, strict=True)]


def _middle(values: Sequence[Spent]) -> Spent:
    return Spent(*(statistics.median(each) for each in zip(*values, strict=True)))


def _ratio(bounded: tuple[float, float, float]) -> str:
    value, low, high = bounded
    return f"{value:.3f} ({low:.3f} to {high:.3f})"

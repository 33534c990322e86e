"""What `make bench-processors` judges and prints."""

from processorbench import report
from processorbench.cells import LOOP, NONE, UNUSED, Spent
from processorbench.report import Found

PARTS = ("prepare", "edits", "stage", "accept")


def found(cell: str, *, dry_us: float = 3000, unused_us: float = 10.0, device: str = "cpu") -> Found:
    each = [Spent(10.0 + turn, 10.0 + turn) for turn in range(3)]
    host = {name: dict.fromkeys(PARTS, each) for name in (NONE.name, UNUSED.name, "DRY")}
    host["DRY"] = {**host["DRY"], "prepare": [Spent(100.0, dry_us)] * 3}
    host[UNUSED.name] = {**host[UNUSED.name], "edits": [Spent(1.0, turn + unused_us) for turn in range(3)]}
    return Found(
        cell,
        device,
        device_bytes=8 << 20,
        host=host,
        ids={"DRY": 7},
        cpu={"DRY": {"ours": [20.0, 40.0], LOOP: [10.0, 20.0]}},
        device_us={"ours, adding": [12.0, 24.0], "logit_bias": [10.0, 20.0]} if device == "cuda" else {},
    )


def met(*cells: Found) -> dict[str, bool | None]:
    return {bar.asks.partition(" <=")[0]: bar.met for bar in report.bars(cells)}


def test_bars_judge_what_was_measured() -> None:
    assert met(found("k3-b64"), found("k3-b256")) == {
        "k3-b64: DRY's prepare": True,
        "k3-b64: upload and kernel": None,
        "k3-b256: edits hold at most 16 MiB on the device": True,
        "k3-b64: a step costs nothing measurable where no request has a processor": True,
        "k3-b256: a step costs nothing measurable where no request has a processor": True,
    }
    dear = met(found("k3-b64", dry_us=4001, unused_us=15, device="cuda"))
    assert not dear["k3-b64: DRY's prepare"]
    assert not dear["k3-b64: upload and kernel"]
    assert not dear["k3-b64: a step costs nothing measurable where no request has a processor"]
    assert dear["k3-b256: edits hold at most 16 MiB on the device"] is None


def test_a_page_says_whether_a_device_was_there() -> None:
    told = "\n".join(report.lines([found("k3-b64")]))
    assert "| k3-b64, DRY | 7 | 100 (3000) |" in told
    assert "| k3-b64, DRY | 30 | 2.000 (2.000 to 2.000) |" in told
    assert "there is no CUDA here" in told
    assert "| k3-b64 | 18 | 15 |" in "\n".join(report.lines([found("k3-b64", device="cuda")]))

"""The two lanes of `make test`: nothing is left out, and nothing runs twice."""

from pathlib import Path

from devtools.lanes import ROOT, lanes


def modules(path: str) -> set[Path]:
    found = ROOT / path
    return {found} if found.is_file() else set(found.rglob("test_*.py"))


def test_every_test_is_in_one_lane() -> None:
    parts, engines = ({module for path in paths for module in modules(path)} for paths in lanes().values())
    assert not parts & engines
    on_gpu = modules("tests/gpu")  # `make test-gpu`
    assert parts | engines == modules("tests") - on_gpu

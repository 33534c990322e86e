"""The documented names are those that the code emits."""

import re
from pathlib import Path

from devtools import sidecar_names as names

from guided_sidecar import telemetry

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
SIDECAR = Path(telemetry.__file__).parents[1]


def test_the_document_holds_the_tables() -> None:
    assert names.tables() in (ROOT / "docs" / "telemetry.md").read_text()


def test_every_attribute_in_the_sidecar_is_documented() -> None:
    tables = names.tables()
    used = {
        name
        for file in SIDECAR.rglob("*.py")
        for name in re.findall(r'"(guidedmodel[._][a-z_.]+)"', file.read_text())
    }
    assert len(used) > 15
    missing = {name for name in used if f"`{name}`" not in tables and f"`{name}_total`" not in tables}
    assert not missing

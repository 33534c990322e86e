"""The commands that the README shows."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(heading: str) -> list[str]:
    """Return the blocks of shell commands below a heading of the README."""
    _, _, below = README.read_text().partition(f"\n## {heading}\n")
    assert below, f"the README has no heading: {heading}"
    return re.findall(r"```sh\n(.*?)```", below.partition("\n## ")[0], re.DOTALL)

"""What the README shows: commands, and what is alike in what they print."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
# What differs from run to run, and what stands for it.
VARYING = (
    (r"\b[0-9a-f]{9,10}\b", "HASH"),  # of a revision, and of a ReplicaSet
    (r"-[a-z0-9]{5}(?=  )", "-POD"),
    (r"\b\d+[smhd](?= ago|  |$)", "AGE"),
    (r" {2,}", "  "),  # columns are as wide as what stands in them
)


def blocks(heading: str) -> list[str]:
    """Return the blocks of shell commands below a heading of the README."""
    _, _, below = README.read_text().partition(f"\n## {heading}\n")
    assert below, f"the README has no heading: {heading}"
    return re.findall(r"```sh\n(.*?)```", below.partition("\n## ")[0], re.DOTALL)


def shape(text: str) -> list[str]:
    """Return the lines without what differs from run to run."""
    for pattern, standing in VARYING:
        text = re.sub(pattern, standing, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.strip().splitlines()]

"""Named grammars as files: what the operator writes into a pod's ConfigMap, and its sidecar reads.

A file `NAME.KIND` holds a grammar's text; `NAME.Absent` says why there is none.
"""

from typing import Final, NamedTuple

from guided_contract.wire import Kind

# What guidedDecoding.grammars[].kind calls the kinds.
KINDS: Final[dict[str, Kind]] = {
    "JSONSchema": "json",
    "Regex": "regex",
    "EBNF": "grammar",
    "StructuralTag": "structural_tag",
}
ABSENT: Final = "Absent"
MAX_BYTES: Final = 1 << 20  # of all files together, names included: what one ConfigMap holds


class NamedText(NamedTuple):
    """A named grammar as its file has it. `kind` None: there is none, and `text` says why."""

    kind: Kind | None
    text: str


def file_name(name: str, kind: str) -> str:
    """Return the name of a grammar's file; `kind` is one of KINDS or ABSENT."""
    return f"{name}.{kind}"


def parse(file: str) -> tuple[str, Kind | None] | None:
    """Return the name and kind of a file's grammar, kind None where it is ABSENT; None: no such file."""
    name, _, kind = file.rpartition(".")
    return (name, KINDS.get(kind)) if name and kind in {ABSENT, *KINDS} else None

"""The table "change -> files" of docs/architecture.md, judged by the code itself.

Each kind of change has an example that is in the code today. Which modules name the example is read from
their syntax trees (comments and docstrings do not count), and the row must name those modules and no others.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = (
    "operator/guided_operator",
    "engine/guided_contract",
    "engine/guided_engine",
    "engine/guided_grammar",
    "sidecar/guided_sidecar",
    "tools/devtools",
)
MOST_FILES = 5

# What names the example of a change: identifiers and strings in which the pattern is found.
EXAMPLES = {
    "a field of the resource that becomes a vLLM option": r"max.lora.rank|^max_rank$",
    "an error code": r"^(REQUEST_UNKNOWN_CONSTRAINT|request_unknown_constraint)$",
    "a metric of a rank": r"drafts.forbidden",
    "a grammar library": r"llguidance|^[Gg]uidance$|^GUIDANCE$",
    "a vLLM version": r"0\.32\b",
    "a logits processor": r"^NoRepeatNgram$",
    "a reason of a condition": r"^(TokenizersDiffer|TOKENIZERS_DIFFER)$",
    "a probe": r"^(livenessProbe|engine_liveness)$",
}
# All of it is the example itself, which may as well be one module, as `tests/support/fake_backend.py` is.
OWN_FOLDER = "engine/guided_grammar/llguidance/"


@functools.cache
def table() -> dict[str, list[str]]:
    """Return the files of each change, as docs/architecture.md has them."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition("\n## What a change touches\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (a[^|]*?) \|[^|]*\| ([^|]*?) \|$", section, re.MULTILINE)
    return {change: re.findall(r"`([^`]+)`", files) for change, files in rows}


def _named(module: Path) -> Iterator[str]:
    """Yield every identifier and string of a module that is not a docstring."""
    tree = ast.parse(module.read_text())
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield node.value
        for field in ("id", "attr", "arg", "name", "module"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


@functools.cache
def _names() -> dict[str, frozenset[str]]:
    modules = (file for folder in CODE for file in (ROOT / folder).rglob("*.py"))
    return {str(module.relative_to(ROOT)): frozenset(_named(module)) for module in modules}


def touched(pattern: str) -> set[str]:
    """Return the hand-written modules that name an example."""
    named = {module for module, names in _names().items() if any(re.search(pattern, name) for name in names)}
    return {re.sub(f"^({OWN_FOLDER}).*", r"\1", module) for module in named}


def test_table_has_every_change() -> None:
    assert set(table()) == set(EXAMPLES)


@pytest.mark.parametrize("change", EXAMPLES)
def test_row_names_the_files_that_the_code_shows(change: str) -> None:
    files = table()[change]
    assert all((ROOT / file).exists() for file in files)
    assert len(set(files)) == len(files)
    shown = sorted(touched(EXAMPLES[change]))
    assert shown, "the example is gone from the code: choose another"
    assert sorted(files) == shown, "the row should be: " + " ".join(f"`{file}`" for file in shown)


@pytest.mark.parametrize("change", EXAMPLES)
def test_change_touches_few_files(change: str) -> None:
    assert len(table()[change]) <= MOST_FILES

"""What tests import of the product is there, also in what only engines load, minutes into a run."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

# Of torch, for whoever imports a model runner first.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TESTS: Final = Path(__file__).parents[1]


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of each `from guided_... import ...`, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("guided_"):
            yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("folder", ["support", "engine", "property", "e2e", "cluster", "smoke", "gpu"])
def test_what_is_imported_of_the_product_is_there(folder: str) -> None:
    files = list((TESTS / folder).rglob("*.py"))
    assert files
    missing = []
    for module, name in sorted({one for file in files for one in imported(ast.parse(file.read_text()))}):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                missing.append(f"{module}.{name}")
    assert missing == []

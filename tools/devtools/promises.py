"""Lists what users can rely on, by the test of each: `make promises WORD=rollback`.

A test's name is the promise, its module's docstring says what it is about, its folder is the tier.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2] / "tests"


def promises(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each promise of a module of tests, and the test's name for pytest."""
    tree = ast.parse(file.read_text())
    here = str(file.relative_to(TESTS.parent))
    for node in tree.body:
        tests = node.body if isinstance(node, ast.ClassDef) else [node]
        inside = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for test in tests:
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
                yield test.name.removeprefix("test_").replace("_", " "), f"{here}::{inside}{test.name}"


def main() -> None:
    """Print the promises that have a word, all without one, below what their module is about."""
    word = os.environ.get("WORD", "").lower()
    for file in sorted(TESTS.glob("*/test_*.py")):
        about = (ast.get_docstring(ast.parse(file.read_text())) or file.stem).splitlines()[0]
        found = [each for each in promises(file) if word in f"{about} {' '.join(each)}".lower()]
        if found:
            sys.stdout.write(f"\n{about}\n")
        sys.stdout.writelines(f"  {promise}\n      {test}\n" for promise, test in found)


if __name__ == "__main__":
    main()

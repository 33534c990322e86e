"""What commands of the Makefile and of `.ci/run` say: their words, and whether pytest finds tests by them."""

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DEFINITIONS: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OPTIONS: Final = re.compile(r"-q|-s|-rs|--durations=\d+")  # of pytest: those that leave no test out


class Command(NamedTuple):
    """A line of a recipe: the variables before it, and its words."""

    variables: frozenset[str]
    words: list[str]


def commands(script: str) -> list[Command]:
    """Return the commands of a shell script, without its comments."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        given = list(itertools.takewhile(re.compile(r"\w+=").match, words))
        if words:
            found.append(Command(frozenset(one.partition("=")[0] for one in given), words[len(given) :]))
    return found


@functools.cache
def variables_read() -> set[str]:
    """Return the environment's variables that tests and tools read."""
    read = set()
    for node in (node for tree in ("tests", "tools") for node in _nodes(ROOT / tree)):
        match node:
            case (
                ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"), args=[name, *_])
                | ast.Subscript(value=ast.Attribute(attr="environ"), slice=name, ctx=ast.Load())
            ):
                read.add(ast.unparse(name).strip("'"))
    return read


def _nodes(place: Path) -> Iterator[ast.AST]:
    for file in place.rglob("*.py") if place.is_dir() else [place]:
        yield from ast.walk(ast.parse(file.read_text()))


def _is_test(place: str) -> bool:
    """Return whether pytest finds tests there: in a folder, a file, or a class or function of one."""
    path, *names = place.split("::")
    files = [ROOT / path] if path.endswith(".py") else list((ROOT / path).rglob("test_*.py"))
    return bool(files) and all(
        file.is_relative_to(ROOT / "tests")
        and fnmatch(file.name, "test_*.py")
        and file.exists()
        and set(names) <= {node.name for node in _nodes(file) if isinstance(node, DEFINITIONS)}
        for file in files
    )


def are_tests(arguments: Sequence[str]) -> bool:
    """Return whether pytest finds tests at each place that its arguments name, and leaves none out."""
    places = [word for word in arguments if not OPTIONS.fullmatch(word)]
    return bool(places) and all(map(_is_test, places))


def imports(module: Path) -> set[str]:
    """Return what a module imports by `from`; of a program, the package that has its `__main__`."""
    return {
        f"{node.module}.{alias.name}".removesuffix(".__main__")
        for node in _nodes(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

"""A plugin of mypy that writes down who reads which attribute, or calls which method, of which class.

It is run by `attribute_reads`. mypy knows the type that an attribute is read of: a namesake is no read of it.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mypy.plugin import AttributeContext, MethodContext, Plugin
from mypy.types import Type

_ENV = "ATTRIBUTE_READS"
_OPTIONS = ["--follow-imports=skip", "--ignore-missing-imports", "--check-untyped-defs", "--no-incremental"]
_CONFIG = "[mypy]\nplugins = {plugin}\n"


class Read(NamedTuple):
    """An attribute of a class was read, or a method called, in a function of a file ("" for none)."""

    attribute: str  # with class and module: where it is defined
    file: Path
    function: str


class AttributeReads(Plugin):
    """Writes a line per attribute that is read, and per method of ours that is called."""

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type]:
        """Note an attribute where it is looked up."""

        def note(context: AttributeContext) -> Type:
            if not context.is_lvalue:
                _note(fullname, context)
            return context.default_attr_type

        return note

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Note a method of the product where it is called."""

        def note(context: MethodContext) -> Type:
            _note(fullname, context)
            return context.default_return_type

        return note if fullname.startswith("guided_") else None


def _note(fullname: str, context: AttributeContext | MethodContext) -> None:
    api: Any = context.api
    with Path(os.environ[_ENV]).open("a") as file:
        file.write(f"{fullname}\t{api.path}\t{context.context.line}\n")


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return AttributeReads


def attribute_reads(folders: Sequence[str], scratch: Path) -> set[Read]:
    """Return what the packages in `folders` read and call; takes a minute at most."""
    config, out = scratch / "mypy.ini", scratch / "reads"
    config.write_text(_CONFIG.format(plugin=__file__))
    command = [sys.executable, "-m", "mypy", f"--config-file={config}", f"--cache-dir={scratch}", *_OPTIONS]
    done = subprocess.run(
        [*command, *folders], env={**os.environ, _ENV: str(out)}, capture_output=True, text=True, check=False
    )
    assert out.exists(), done.stdout + done.stderr
    found = set()
    functions: dict[str, dict[int, str]] = {}
    for line in out.read_text().splitlines():
        attribute, path, number = line.split("\t")
        if path not in functions:
            functions[path] = _functions(Path(path))
        found.add(Read(attribute, Path(path).resolve(), functions[path].get(int(number), "")))
    return found


def _functions(path: Path) -> dict[int, str]:
    """Return the function that each line is in, by its name; of nested ones the innermost."""
    lines: dict[int, str] = {}
    for node in ast.walk(ast.parse(path.read_text())):  # outer ones first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), node.name)
    return lines

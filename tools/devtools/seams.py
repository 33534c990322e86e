"""What the plugin relies on in vLLM, by what it does: the syntax tree of each function, hashed for each vLLM.

``python -m devtools.seams 0.34.0`` compares that version with the newest other one of seams.txt: same, moved,
changed (with the difference) or gone. ``--sign`` writes its hashes there: somebody has read the differences.
"""

import ast
import difflib
import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("seams.txt")
GONE: Final = "-"
_VERBS: Final = frozenset(
    {"get", "post", "put", "delete", "patch", "websocket", "api_route", "add_api_route"}
)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Seam(NamedTuple):
    """What one vLLM has under a seam's name: its source without docstrings and comments, and a hash of it."""

    text: str
    digest: str


class Source:
    """The Python files of one vLLM, in the folder vllm of `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees: dict[Path, ast.Module] = {}

    def find(self, name: str) -> Seam | None:
        """Return what a seam is: `module:qualified.name`, or `routes` or `imports`; None: it is not there."""
        if name == "routes":
            return _listed(set(self._routes()))
        if name == "imports":
            return _listed({f"{one} is gone" for one in _imports() if not self._has(one)})
        module, _, inside = name.partition(":")
        path = self._file(module)
        return None if path is None else self._defined(path, inside)

    def moved(self, name: str) -> list[str]:
        """Return the other modules that define what a seam names."""
        inside = name.partition(":")[2]
        word = re.compile(rf"(?m)^\s*(?:class|(?:async )?def) {inside.rpartition('.')[2]}\b")
        files = [path for path in self._files if word.search(path.read_text(encoding="utf-8"))]
        return [self._module(path) for path in files if inside and self._defined(path, inside)]

    @cached_property
    def _files(self) -> list[Path]:
        return sorted((self._root / "vllm").rglob("*.py"))

    def _file(self, module: str) -> Path | None:
        base = self._root / module.replace(".", "/")
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)

    def _module(self, path: Path) -> str:
        return ".".join(path.relative_to(self._root).with_suffix("").parts).removesuffix(".__init__")

    def _tree(self, path: Path) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = ast.parse(path.read_text(encoding="utf-8"))
        return self._trees[path]

    def _defined(self, path: Path, name: str) -> Seam | None:
        node: ast.AST = self._tree(path)
        for part in name.split("."):
            found = [one for one in _statements(node) if part in _names(one)]
            if not found or isinstance(found[-1], ast.Import | ast.ImportFrom):
                return None
            node = found[-1]
        _forget_docstrings(node)
        return Seam(ast.unparse(node), _hash(_dump(node)))

    def _has(self, imported: str) -> bool:
        module, _, name = imported.partition(":")
        path = self._file(module)
        if path is None or self._file(f"{module}.{name}") is not None:
            return path is not None
        known = {found for one in _statements(self._tree(path)) for found in _names(one)}
        return name in known or f'"{name}"' in path.read_text(
            encoding="utf-8"
        )  # the latter: imported when asked for

    def _routes(self) -> Iterator[str]:
        for path in self._files:
            for node in ast.walk(self._tree(path)) if "entrypoints" in path.parts else ():
                for call in (node, *getattr(node, "decorator_list", ())):
                    match call:
                        case ast.Call(
                            func=ast.Attribute(attr=verb), args=[ast.Constant(value=str(route)), *_]
                        ):
                            if verb in _VERBS:
                                yield f"{verb} {route}"


def of_version(version: str) -> Source:
    """Return a published vLLM's Python files, from the wheel, kept below .cache."""
    folder = ROOT / ".cache/vllm" / version
    if not folder.exists():
        install = [str(ROOT / "tools/uv"), "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*install, f"vllm=={version}"], check=True)  # noqa: S603 - a tool of ours
    return Source(folder)


def signed() -> dict[str, dict[str, str]]:
    """Return each seam's hash by version, of those whose differences somebody has read."""
    head, *rows = (line.split() for line in TABLE.read_text().splitlines())
    return {seam: dict(zip(head[1:], hashes, strict=False)) for seam, *hashes in rows}


def hashes(source: Source) -> dict[str, str]:
    """Return the hash of each seam of seams.txt in one vLLM."""
    return {name: GONE if (seam := source.find(name)) is None else seam.digest for name in signed()}


def compared(name: str, before: Source, after: Source) -> tuple[str, str]:
    """Return what became of a seam, in a word, and what there is to read about it."""
    old, new = before.find(name), after.find(name)
    if new is None:
        places = after.moved(name)
        return ("moved", f"to {', '.join(places)}") if places else ("gone" if old else "same", "")
    if old is not None and old.digest == new.digest:
        return "same", ""
    lines = difflib.unified_diff(
        (old.text if old else "").splitlines(), new.text.splitlines(), n=2, lineterm=""
    )
    return "changed", "\n".join(list(lines)[2:])


def _listed(lines: set[str]) -> Seam:
    text = "\n".join(sorted(lines))
    return Seam(text, _hash(text))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _imports() -> set[str]:
    """Return what our code imports of vLLM, as module:name."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "engine").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if (node.module or "").partition(".")[0] == "vllm"]
    return {f"{node.module}:{alias.name}" for node in ours for alias in node.names}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those below `if` and `try`."""
    for field in ("body", "orelse", "finalbody"):
        for one in getattr(node, field, ()):
            yield one
            if isinstance(one, ast.If | ast.Try):
                yield from _statements(one)


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Assign() | ast.AnnAssign():
            return {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
    return set()


def _forget_docstrings(node: ast.AST) -> None:
    for one in ast.walk(node):
        if isinstance(one, _DEFINITIONS) and ast.get_docstring(one, clean=False) is not None:
            one.body = one.body[1:] or [ast.Pass()]


def _dump(node: Any) -> str:
    """Write a syntax tree the same in each Python: without places, and without what is empty."""
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    said = [f"{field}={_dump(value)}" for field, value in ast.iter_fields(node) if value not in (None, [])]
    return f"{type(node).__name__}({','.join(said)})"


def main(version: str, *, sign: bool) -> None:
    """Print what became of each seam in a version, and sign it where that is asked for."""
    table = signed()
    known = list(next(iter(table.values())))
    newest = next((one for one in reversed(known) if one != version), known[-1])
    before, after = of_version(newest), of_version(version)
    counts: Counter[str] = Counter()
    for name in table:
        word, rest = compared(name, before, after)
        counts[word] += 1
        if word != "same":
            sys.stdout.write(f"=== {word}: {name}\n{rest}\n\n")
    told = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    sys.stdout.write(f"seams: {version} beside {newest}: {told}\n")
    if sign:
        columns = sorted({*known, version}, key=lambda one: [*map(int, one.split("."))])
        now = hashes(after)
        rows = [[name, *({**table[name], version: now[name]}[one] for one in columns)] for name in table]
        TABLE.write_text("".join(" ".join(row) + "\n" for row in [["seam", *columns], *rows]))


if __name__ == "__main__":
    main(sys.argv[1], sign="--sign" in sys.argv)

"""Which packages the product imports.

IMPORTS owns which top-level packages each package of the product imports, ours and others', wherever in its
files: what is not listed, as devtools and support, is not imported. The contracts in pyproject.toml own which
module may import which: the layers inside a package, and who alone knows kopf and vLLM. The last test owns
what the sidecar's service process has loaded once it is up; its contract in pyproject.toml, what it could
still reach in `guided_sidecar.grammar.compile` later.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
IMPORTS: Final = {
    "operator/guided_operator": {
        "aiohttp",
        "cel_expr_python",
        "click",
        "google",
        "guided_contract",
        "kopf",
        "kubernetes",
        "msgspec",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "yaml",
    },
    "engine/guided_engine": {
        "aiohttp",
        "guided_contract",
        "guided_grammar",
        "msgspec",
        "numpy",
        "psutil",  # vLLM's own
        "starlette",
        "torch",
        "vllm",
    },
    "engine/guided_contract": {"msgspec"},
    "engine/guided_grammar": {
        "guided_contract",
        "llguidance",
        "numpy",
        "transformers",
        "xgrammar",
    },
    "sidecar/guided_sidecar": {
        "aiohttp",
        "guided_contract",
        "guided_grammar",
        "jsonschema",
        "msgspec",
        "numpy",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "referencing",
        "transformers",
        "tvm_ffi",
        "xgrammar",
    },
}
# Modules whose names stand in no code: of logits processors in the pod's configuration, and of the backends
# in guided_contract.backends.
NAMED_ELSEWHERE: Final = {
    "engine/guided_engine/processors/registry.py",
    "engine/guided_grammar/registry.py",
}
UNKNOWN: Final = "?"
IMPORTERS: Final = {"import_module", "__import__", "resolve_name", "run_module"}
LOADED: Final = """
import sys
import guided_sidecar.__main__, guided_sidecar.service, guided_sidecar.supervisor
print("\\n".join(sys.modules))
"""
OF_WORKERS: Final = (
    "guided_grammar.json_schema",
    "guided_grammar.registry",
    "guided_sidecar.grammar.compile",
    "guided_sidecar.grammar.schema",
    "llguidance",
    "torch",
    "transformers",
    "xgrammar",
)


def imported(source: str) -> Iterator[str]:
    """Yield the top-level package of each absolute import: UNKNOWN where a call computes its name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if (
                name in IMPORTERS
            ):
                yield top_level(first)


def top_level(name: ast.expr) -> str:
    """Return the top-level package of a module's name, as far as it is spelt out."""
    match name:
        case ast.Constant(value=str(text)):
            return text.partition(".")[0]
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if "." in text:
            return text.partition(".")[0]
        case _:
            return UNKNOWN


def found(package: str) -> set[str]:
    return {name for file in (ROOT / package).rglob("*.py") for name in imported(file.read_text())}


def test_every_package_of_the_product_is_listed() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(built["packages"]) == set(IMPORTS)


@pytest.mark.parametrize("package", IMPORTS)
def test_a_package_imports_just_what_is_listed(package: str) -> None:
    own = {package.rpartition("/")[2], UNKNOWN}
    assert found(package) - own - sys.stdlib_module_names == IMPORTS[package]


def test_names_of_modules_are_computed_only_where_listed() -> None:
    computed = {
        str(file.relative_to(ROOT))
        for package in IMPORTS
        for file in (ROOT / package).rglob("*.py")
        if UNKNOWN in imported(file.read_text())
    }
    assert computed == NAMED_ELSEWHERE


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("import torch.nn as nn", "torch"),
        ("from torch.nn import functional", "torch"),
        ("def late():\n    import torch", "torch"),
        ("if TYPE_CHECKING:\n    from support import pod", "support"),
        ("importlib.import_module('devtools.image')", "devtools"),
        ("import_module(f'devtools.{name}')", "devtools"),
        ("import_module(name)", UNKNOWN),
        ("__import__('torch')", "torch"),
    ],
)
def test_each_form_of_an_import_is_found(source: str, package: str) -> None:
    assert list(imported(source)) == [package]


def test_the_service_process_imports_nothing_of_the_worker_process() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout.split()
    assert "guided_sidecar.service" in loaded
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{one}." for one in OF_WORKERS))] == []

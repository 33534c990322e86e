"""Engine and sidecar import only what a stock vLLM image has, and the service nothing of its workers."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# What each imports besides Python's own; the contracts in pyproject.toml say which module may import which.
IMPORTS: Final = {
    "operator/guided_operator": {
        *(
            "aiohttp",
            "cel_expr_python",
            "click",
            "google",
            "guided_contract",
            "kopf",
            "kubernetes",
            "msgspec",
        ),
        *("opentelemetry", "prometheus_client", "pydantic", "pydantic_core", "yaml"),
    },
    "engine/guided_engine": {
        *("aiohttp", "guided_contract", "guided_grammar", "msgspec", "numpy", "psutil", "starlette"),
        *("torch", "vllm"),
    },
    "engine/guided_contract": {"msgspec"},
    "engine/guided_grammar": {"guided_contract", "llguidance", "numpy", "transformers", "xgrammar"},
    "sidecar/guided_sidecar": {
        *("aiohttp", "guided_contract", "guided_grammar", "jsonschema", "msgspec", "numpy", "opentelemetry"),
        *("prometheus_client", "pydantic", "referencing", "transformers", "tvm_ffi", "xgrammar"),
    },
}
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


def imported(file: Path) -> Iterator[str]:
    """Yield the top-level package of each absolute import of a file, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


@pytest.mark.parametrize("package", IMPORTS)
def test_a_package_imports_just_what_is_listed(package: str) -> None:
    found = {name for file in (ROOT / package).rglob("*.py") for name in imported(file)}
    others = found - sys.stdlib_module_names - {package.rpartition("/")[2]}
    assert others == IMPORTS[package]


def test_the_service_process_imports_nothing_of_the_worker_process() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout.split()
    assert "guided_sidecar.service" in loaded
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{one}." for one in OF_WORKERS))] == []

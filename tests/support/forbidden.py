"""A middleware that makes every way into the grammar libraries raise, in the API server's process alone."""

import importlib
import os
from pathlib import Path
from typing import Any, NoReturn

NATIVE = (
    (
        "xgrammar",
        "Grammar",
        ("from_json_schema", "from_regex", "from_ebnf", "from_lark", "from_structural_tag"),
    ),
    ("xgrammar", "GrammarCompiler", ("__init__",)),
    ("llguidance", "LLMatcher", ("validate_grammar", "grammar_from_json_schema", "grammar_from_regex")),
)


class Forbidden:
    """Loaded by --middleware; notes each native call in the file that FORBIDDEN_OUT names."""

    def __init__(self, app: Any) -> None:
        self._app = app
        for module, name, methods in NATIVE:
            for method in methods:
                setattr(getattr(importlib.import_module(module), name), method, _raising(f"{name}.{method}"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


def _raising(name: str) -> Any:
    def raising(*_args: Any, **_kwargs: Any) -> NoReturn:
        with Path(os.environ["FORBIDDEN_OUT"]).open("a") as out:
            out.write(f"{name}\n")
        raise RuntimeError(f"native grammar code in the API server: {name}")

    return raising

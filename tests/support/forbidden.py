"""A middleware that makes the grammar libraries untouchable, in the API server's process alone."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

ROUTES_PATH = "/every-route"
TOUCH_PATH = "/touch-the-libraries"
_TAG = '{"type": "structural_tag", "format": {"type": "any_text"}}'


class Untouchable:
    """Stands for what is native in a library: every use of it is told, by name."""

    def __init__(self, name: str, touched: Callable[[str], NoReturn]) -> None:
        self.__dict__.update(_name=name, _touched=touched)

    def __getattr__(self, attribute: str) -> NoReturn:
        self._touched(f"{self._name}.{attribute}")

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        self._touched(self._name)

    def __or__(self, _other: Any) -> Any:
        return Any  # in an annotation, which vLLM's modules evaluate when they are imported


def native() -> Iterator[tuple[Any, str]]:
    """Yield every way into native code, as a module and its attribute; only pure Python is left.

    xgrammar's modules call C++ through `_core`; llguidance's Rust classes are those of its `_lib`.
    """
    for library in ("xgrammar.testing", "llguidance._lib", "llguidance.hf", "llguidance.torch"):
        importlib.import_module(library)
    rust = {name for name in vars(sys.modules["llguidance._lib"]) if not name.startswith("__")}
    for name, module in list(sys.modules.items()):
        if name.startswith("xgrammar") and "_core" in vars(module):
            yield module, "_core"
        if name.startswith("llguidance"):
            yield from ((module, each) for each in rust & vars(module).keys())


class Forbidden:
    """Loaded by --middleware; notes each touch in the file that FORBIDDEN_OUT names.

    It also tells which routes the application really has, and touches the libraries if it is asked to.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        for module, name in list(native()):
            setattr(module, name, Untouchable(f"{module.__name__}.{name}", _touched))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path")
        if path == ROUTES_PATH:
            await _answer(sorted(_routes(scope["app"])), send)
        elif path == TOUCH_PATH:
            await _answer([_refusal(touch) for touch in TOUCHES], send)
        else:
            await self._app(scope, receive, send)


def _xgrammar() -> Any:
    return importlib.import_module("xgrammar")


def _llguidance() -> Any:
    return importlib.import_module("llguidance")


# What upstream does in an API server, and may do in a later version.
TOUCHES: tuple[Callable[[], Any], ...] = (
    lambda: _xgrammar().Grammar.from_regex("a"),
    lambda: _xgrammar().Grammar.from_structural_tag(_TAG),
    lambda: _xgrammar().TokenizerInfo(["a"]),
    lambda: _llguidance().LLMatcher.grammar_from_regex("a"),
    lambda: _llguidance().LLTokenizer("byte"),
    lambda: _llguidance().grammar_from("regex", "a"),
)


def _refusal(touch: Callable[[], Any]) -> str:
    try:
        touch()
    except RuntimeError as error:
        return str(error)
    return ""


def _routes(app: Any) -> Iterator[tuple[str, str]]:
    """Yield path and method of every route, also of those that no document lists."""
    for route in app.routes:
        for method in getattr(route, "methods", None) or {type(route).__name__}:
            yield route.path, method


def _touched(name: str) -> NoReturn:
    with Path(os.environ["FORBIDDEN_OUT"]).open("a") as out:
        out.write(f"{name}\n")
    raise RuntimeError(f"native grammar code in the API server: {name}")


async def _answer(content: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})

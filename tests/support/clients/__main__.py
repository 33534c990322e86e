"""Runs in the clients' own Python: `python -m support.clients URL` prints a JSON line for each call."""

import importlib
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Final

from pydantic import TypeAdapter

from support.clients.cases import CASES, Case

MODULES: Final = {
    "openai": "with_openai",
    "anthropic": "with_anthropic",
    "instructor": "with_instructor",
    "pydantic-ai": "with_pydantic_ai",
    "langchain-openai": "with_langchain",
}
Calls = dict[str, Callable[[str], Sequence[Any]]]
_AT_ONCE: Final = 6  # each is one or a few requests, and the engine takes no more in a batch


def main() -> None:
    """Make every call, several at once."""
    warnings.simplefilter("ignore")  # of the libraries about each other
    url = sys.argv[1]
    calls: dict[str, Calls] = {
        library: importlib.import_module(f"support.clients.{module}").CALLS
        for library, module in MODULES.items()
    }
    assert {(case.library, case.call) for case in CASES} == {
        (name, call) for name in calls for call in calls[name]
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for future in as_completed(
            pool.submit(told, case, calls[case.library][case.call], url) for case in CASES
        ):
            sys.stdout.write(json.dumps(future.result()) + "\n")
            sys.stdout.flush()


def told(case: Case, call: Callable[[str], Sequence[Any]], url: str) -> dict[str, Any]:
    """Return what one call gave: `values`, or what its exception shows a developer."""
    line: dict[str, Any] = {"library": case.library, "call": case.call}
    try:
        line["values"] = TypeAdapter(Any).dump_python(call(url), mode="json")
    except Exception as error:  # noqa: BLE001 - the test says which may come
        line["error"] = shown(error)
    return line


def shown(error: Exception) -> dict[str, Any]:
    """Return the attributes that OpenAI's and Anthropic's errors have, the latter's from its body."""
    body = getattr(error, "body", None)
    inner = body.get("error", {}) if isinstance(body, dict) else {}
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None) or inner.get("code"),
        "param": getattr(error, "param", None) or inner.get("param"),
        "request_id": getattr(error, "request_id", None),
        "message": str(error)[:2000],
        "trace": traceback.format_exception(error)[-6:],
    }


if __name__ == "__main__":
    main()

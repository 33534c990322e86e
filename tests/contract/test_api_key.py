"""Where vLLM asks for the API key, against what docs/security.md says."""

from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")  # what vLLM and torch warn of when imported is theirs


@pytest.mark.parametrize(
    ("path", "is_asked"),
    [
        *((path, True) for path in ("/v1/chat/completions", "/inference/v1/generate")),
        *((path, False) for path in ("/health", "/metrics", "/tokenize", "/invocations")),
    ],
)
def test_the_key_is_asked_for_where_the_documents_say(path: str, *, is_asked: bool) -> None:
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    passed: list[str] = []

    def application(scope: Any, *_: Any) -> Any:
        passed.append(scope["path"])

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    AuthenticationMiddleware(application, ["key"])(scope, _nobody, _nobody)  # type: ignore[arg-type]
    assert (not passed) == is_asked


async def _nobody(*_: Any) -> Any:
    raise AssertionError("nobody reads or writes here")

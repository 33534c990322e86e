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

    def nobody(*_: Any) -> Any:
        raise AssertionError("nobody reads or writes here")

    passed: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    AuthenticationMiddleware(lambda *asked: passed.append(asked), ["key"])(scope, nobody, nobody)
    assert (not passed) == is_asked, "a request without the key is stopped before the application"

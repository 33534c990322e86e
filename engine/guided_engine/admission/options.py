"""What a request chooses for itself in vllm_xargs, where its model lets it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from guided_contract import backends, names
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_contract.config import GuidedDecodingConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend


class Options(NamedTuple):
    """As wire.Prepare has them; None: as the pod is configured."""

    backend: Backend | None = None
    whitespace: Whitespace | None = None
    unsupported_keywords: UnsupportedKeywords | None = None


_ARGUMENTS: Final[dict[str, RequestOption]] = {
    names.BACKEND_ARG: "Backend",
    names.WHITESPACE_ARG: "Whitespace",
    names.UNSUPPORTED_KEYWORDS_ARG: "UnsupportedKeywords",
}


def options_of(extra_args: Mapping[str, Any] | None, guided: GuidedDecodingConfig) -> Options:
    """Return what a request chooses.

    Raises
    ------
    GuidedError
        It chooses what its model does not let requests choose (request_reserved_argument), or what there is
        not (grammar_unsupported).
    """
    given = extra_args or {}
    asked = {name: given[name] for name in _ARGUMENTS if given.get(name) is not None}
    for name in asked:
        if _ARGUMENTS[name] not in guided.request_options:
            message = f"{name} is not in this model's guidedDecoding.requestOptions; remove it"
            raise GuidedError(ErrorCode.REQUEST_RESERVED_ARGUMENT, message, path=f"vllm_xargs.{name}")
    configured = backends.NAMES.get(guided.backend)
    offered = backends.NAMES.values() if configured is None else (configured,)
    return Options(
        _chosen(asked, names.BACKEND_ARG, {backend: backend for backend in offered}),
        _chosen(asked, names.WHITESPACE_ARG, _by_lower_case(Whitespace)),
        _chosen(asked, names.UNSUPPORTED_KEYWORDS_ARG, _by_lower_case(UnsupportedKeywords)),
    )


def _by_lower_case(choices: Any) -> dict[str, Any]:
    return {choice.lower(): choice for choice in get_args(choices)}


def _chosen(asked: Mapping[str, Any], name: str, offered: Mapping[str, Any]) -> Any:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, str) and value in offered:
        return offered[value]
    message = f"{name} must be {' or '.join(offered)} here"
    raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"vllm_xargs.{name}")

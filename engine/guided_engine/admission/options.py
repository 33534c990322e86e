"""What a request chooses for itself in vllm_xargs, where its model lets it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

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


def options_of(extra_args: Mapping[str, Any] | None, guided: GuidedDecodingConfig) -> Options:
    """Return what a request chooses.

    Raises
    ------
    GuidedError
        It has a key with our prefix that is none of a client's, or chooses what its model does not let
        requests choose (request_reserved_argument), or what there is not (grammar_unsupported).
    """
    for name in extra_args or ():
        if name.startswith(names.RESERVED_PREFIX) and name not in names.CLIENT_ARGS:
            message = f"vllm_xargs must not contain {name!r}: keys that begin with guided_ are reserved"
            raise GuidedError(ErrorCode.REQUEST_RESERVED_ARGUMENT, message, path=f"vllm_xargs.{name}")
    configured = backends.NAMES.get(guided.backend)
    offered: list[tuple[str, RequestOption, Iterable[str]]] = [
        (names.BACKEND_ARG, "Backend", backends.NAMES.values() if configured is None else (configured,)),
        (names.WHITESPACE_ARG, "Whitespace", get_args(Whitespace)),
        (names.UNSUPPORTED_KEYWORDS_ARG, "UnsupportedKeywords", get_args(UnsupportedKeywords)),
    ]
    chosen: list[Any] = []
    for name, option, choices in offered:
        value = (extra_args or {}).get(name)
        if value is not None and option not in guided.request_options:
            message = f"{name} is not in this model's guidedDecoding.requestOptions; remove it"
            raise GuidedError(ErrorCode.REQUEST_RESERVED_ARGUMENT, message, path=f"vllm_xargs.{name}")
        by_word = {choice.lower(): choice for choice in choices}
        if value is not None and not (isinstance(value, str) and value in by_word):
            message = f"{name} must be {' or '.join(by_word)} here"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"vllm_xargs.{name}")
        chosen.append(None if value is None else by_word[value])
    return Options(*chosen)

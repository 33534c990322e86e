"""vLLM's own classes of the grammar backends that it has, by its names for them, which are ours."""

from collections.abc import Callable
from typing import Any, NamedTuple

from guided_contract.wire import Backend


class Upstream(NamedTuple):
    """A backend of vLLM's: its class, and where an instance keeps the tokenizer in the library's own form."""

    make: Callable[..., Any]
    tokenizer: Callable[[Any], Any]


def find(name: Backend) -> Upstream | None:
    """Return vLLM's backend of that name, None where it has none."""
    from vllm.v1.structured_output import backend_guidance, backend_xgrammar  # noqa: PLC0415 - where it is used

    return {
        # Only a compiled grammar gives the TokenizerInfo away that the backend has made.
        "xgrammar": Upstream(
            backend_xgrammar.XgrammarBackend, lambda made: made.compiler.compile_regex("a").tokenizer_info
        ),
        "guidance": Upstream(backend_guidance.GuidanceBackend, lambda made: made.ll_tokenizer),
    }.get(name)

"""vLLM's own classes of the grammar backends that it has, by its names for them, which are ours."""

from collections.abc import Callable
from typing import Any, NamedTuple

from guided_contract.wire import Backend


class Upstream(NamedTuple):
    """A backend of vLLM's: its class, and what makes an instance's form of a tokenizer the library's own."""

    make: Callable[..., Any]
    tokenizer: Callable[[Any, Any], Any]


def find(name: Backend) -> Upstream | None:
    """Return vLLM's backend of that name, None where it has none."""
    from vllm.v1.structured_output import backend_guidance, backend_xgrammar  # noqa: PLC0415 - where it is used

    from guided_grammar.xgrammar import special  # noqa: PLC0415 - imports xgrammar

    return {
        # Only a compiled grammar gives the TokenizerInfo away that the backend has made.
        "xgrammar": Upstream(
            backend_xgrammar.XgrammarBackend,
            lambda made, tokenizer: special.marked(
                made.compiler.compile_regex("a").tokenizer_info, tokenizer
            ),
        ),
        "guidance": Upstream(backend_guidance.GuidanceBackend, lambda made, _: made.ll_tokenizer),
    }.get(name)

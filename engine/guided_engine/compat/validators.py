"""Replaces vLLM's native grammar validators in the API server by plain Python.

Upstream compiles a client's grammar on the event loop before anything has bounded it: an endless one hangs
the server for everybody. Here the grammar service compiles and judges it, in a process that can be killed.
Upstream imports the validators inside functions, so replacing the attributes of their modules is enough.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, NoReturn

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.ledger import LedgerEntry


def _apply(_config: PodConfig) -> None:
    _replace_validators()
    _replace_tool_grammars()


def _replace_validators() -> None:
    from vllm.v1.structured_output import (  # noqa: PLC0415 - see compat/__init__.py
        backend_guidance,
        backend_lm_format_enforcer,
        backend_outlines,
        backend_xgrammar,
    )

    backend_xgrammar.validate_xgrammar_grammar = rewrite_choice
    backend_guidance.validate_guidance_grammar = _accept
    backend_outlines.validate_structured_output_request_outlines = _accept
    backend_lm_format_enforcer.validate_structured_output_request_lm_format_enforcer = _accept


def _replace_tool_grammars() -> None:
    from vllm.parser import abstract_parser, harmony  # noqa: PLC0415 - see compat/__init__.py

    judging = _judging_tags(abstract_parser, abstract_parser.structured_outputs_to_format)
    harmony.structured_outputs_to_format = abstract_parser.structured_outputs_to_format = judging
    # Upstream asks xgrammar on the event loop, and leaves the tools free where it says no. Here the grammar
    # service judges tools and constraint together, and such a request gets its error.
    abstract_parser._xgrammar_supports = lambda _structured_outputs: True  # noqa: SLF001 - what this module is for
    abstract_parser.Grammar = _Refusing("a Lark grammar together with tools")
    with contextlib.suppress(ImportError):  # of a package that most images lack; then no request gets there
        from vllm.parser import cohere_command  # noqa: PLC0415 - see compat/__init__.py

        cohere_command.xgr = _Refusing("tools on a Cohere model")


def rewrite_choice(sampling_params: Any) -> None:
    """Do what validate_xgrammar_grammar does besides validating: turn a choice into its grammar."""
    from vllm.v1.structured_output.utils import choice_as_grammar  # noqa: PLC0415 - see compat/__init__.py

    constraint = sampling_params.structured_outputs
    if constraint is not None and constraint.choice:
        constraint.grammar = choice_as_grammar(constraint.choice)
        constraint.choice = None


def _judging_tags(parser: Any, to_format: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Refuse a client's structural tag of which vLLM, which makes another of it, would drop keys or trip."""

    def judging(params: Any) -> Any:
        try:
            if params.structural_tag is not None:
                parser.StructuralTag.model_validate_json(params.structural_tag, strict=True, extra="forbid")
        except parser.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            _refuse(f"$: {'.'.join(map(str, first['loc']))}: {first['msg']}", path="$")
        return to_format(params)

    return judging


def _refuse(message: str, path: str | None = None) -> NoReturn:
    from guided_engine.compat.api_errors import refuse  # noqa: PLC0415 - imports vLLM

    refuse(GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path), "structural_tag")


def _accept(*_args: Any, **_kwargs: Any) -> None:
    """Judge nothing: the grammar service has, or will."""


class _Refusing:
    """Stands for xgrammar where upstream would convert a client's grammar on the event loop."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"guided decoding is not supported for {self._what}")


ENTRIES: Final = (
    LedgerEntry(
        name="validators",
        why="native grammar code on the API server's event loop hangs or crashes it for everybody",
        upstream="https://github.com/vllm-project/vllm/issues/54003",
        goes_when="vLLM validates grammars in a process that can be killed",
        apply=_apply,
    ),
)

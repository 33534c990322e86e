"""Processors as users have them from vLLM, unchanged, as factories: functions, and AdapterLogitsProcessors.

Both come down to a function `f(output_ids, logits)` or `f(prompt_ids, output_ids, logits)`, which is given
one row [vocabulary] and returns it, or another tensor in its place. vLLM's classes are told by what they
have: only guided_engine.compat imports vLLM.
"""

import inspect
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from guided_contract.combinations.table import FOREIGN
from guided_engine.processors.interface import (
    Context,
    DenseFactory,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)

_log = logging.getLogger("guided_engine")

Function = Callable[..., Any]
_WITH_PROMPT: Final = 3  # so many parameters; as vLLM tells the two
_ADAPTER: Final = "AdapterLogitsProcessor"
_REWRITE: Final = "write it as a ProcessorFactory"


class UnsuitableError(Exception):
    """What the configuration names cannot be a factory; the message goes on after its name."""


class AdapterFactory(DenseFactory[Params]):
    """Gives each row to its sequence's function; called as what it stands for, for the log."""

    @abstractmethod
    def function_for(self, sampling_params: Any) -> Function | None:
        """Return the function for a request; None: it needs none."""

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        """Return what keeps the tokens for its function."""
        function = self.function_for(sequence.sampling_params)
        if not function:
            return None
        if len(inspect.signature(function).parameters) == _WITH_PROMPT:
            if not sequence.prompt_tokens:
                raise ValueError("it needs the prompt's token ids, and this prompt has none")
            function = partial(function, list(sequence.prompt_tokens))
        return _Tokens(function)

    def apply(self, logits: Any, rows: Sequence[Callable[[Any], Any]]) -> None:
        """Call each row's function; where one raises, its row is NaN, which ends its sequence alone."""
        for index, changed in enumerate(rows):
            row = logits[index]
            try:
                result = changed(row)
                if result is not row:
                    logits[index] = result
            except Exception:  # noqa: BLE001 - the user's function; its sequence alone pays
                _log.exception("guidedmodel: %s failed; its sequence is ended", type(self).__qualname__)
                logits[index] = float("nan")


class _Tokens(SequenceProcessor):
    """Gives a function the tokens that each row comes after."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._output: list[int] = []

    def prepare(self, ahead: Sequence[int]) -> list[Callable[[Any], Any]]:
        # The first has the list itself, as in vLLM: it is as long as the sequence.
        longer = [[*self._output, *ahead[:count]] for count in range(1, len(ahead) + 1)]
        return [partial(self._function, output) for output in (self._output, *longer)]

    def accept(self, tokens: Sequence[int]) -> None:
        self._output.extend(tokens)


def factory_of(found: Any) -> type[ProcessorFactory[Any]]:
    """Return the factory that a class is, or that a class or function of vLLM's makes.

    Raises
    ------
    UnsuitableError
        There is none.
    """
    if not isinstance(found, type):
        return _of_function(found)
    if issubclass(found, ProcessorFactory):
        return found
    if hasattr(found, "new_req_logits_processor"):
        return _of_adapter(found)
    if hasattr(found, "update_state") and hasattr(found, "is_argmax_invariant"):
        raise UnsuitableError(f"is {FOREIGN.message}")
    if hasattr(found, "add_request") and hasattr(found, "apply"):
        raise UnsuitableError(
            "implements vLLM's V2 interface, which changes the entire batch, not only the sequences that "
            f"select it: {_REWRITE}"
        )
    raise UnsuitableError(f"is not a ProcessorFactory, {_ADAPTER} or function: {_REWRITE}")


def _of_function(function: Any) -> type[ProcessorFactory[Any]]:
    try:
        count = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        count = 0
    if count not in {_WITH_PROMPT - 1, _WITH_PROMPT}:
        raise UnsuitableError(
            "is neither a class nor a function of (output_ids, logits) or (prompt_ids, output_ids, logits): "
            f"change its parameters, or {_REWRITE}"
        )

    class OfFunction(AdapterFactory):
        """Calls one function for all sequences."""

        supports_speculation = getattr(function, "supports_speculation", True)

        def function_for(self, sampling_params: Any) -> Function:  # noqa: ARG002 - the base's
            return function  # type: ignore[no-any-return]  # the author's

    OfFunction.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return OfFunction


def _of_adapter(adapter: type[Any]) -> type[ProcessorFactory[Any]]:
    bases = adapter.__mro__
    base = next((each for each in bases if each.__name__ == _ADAPTER), adapter)
    own = [
        name for name in ("apply", "update_state") if getattr(adapter, name, 0) is not getattr(base, name, 0)
    ]
    if own:
        raise UnsuitableError(
            f"is an {_ADAPTER} with its own {' and '.join(own)}, but only the function that "
            f"new_req_logits_processor returns is called: move the code there, or {_REWRITE}"
        )

    class OfAdapter(AdapterFactory):
        """Has an AdapterLogitsProcessor make a function for each request."""

        # Its functions may count calls, or keep what they have read of the output: vLLM gives them no drafts.
        supports_speculation = getattr(adapter, "supports_speculation", False)

        def __init__(self, params: Params, context: Context) -> None:
            super().__init__(params, context)
            import torch  # noqa: PLC0415 - where there is an AdapterLogitsProcessor, there is torch

            device = torch.device(context.device)
            self._adapter = adapter(context.vllm_config, device, context.is_pin_memory)

        def function_for(self, sampling_params: Any) -> Function | None:
            made: Function | None = self._adapter.new_req_logits_processor(sampling_params)
            return made

    if hasattr(adapter, "validate_params"):
        OfAdapter.validate_params = adapter.validate_params  # type: ignore[attr-defined]  # the gate asks it
    OfAdapter.__qualname__ = adapter.__qualname__
    return OfAdapter

"""Logits processors that installed packages bring to vLLM, in the group of entry points that it loads.

Model Runner V2 ends its start at one of the interface before, without a word about whose it is or what to do.
One that spec.logitsProcessors names is run there; vLLM is not to run it a second time.

Not in the plugin's `register`: vLLM calls that before there is a VllmConfig, and unless the environment says
so it is that which decides for a model runner. To refuse by the package alone would keep Model Runner V1 from
what it can run; and nothing else than vLLM's list can leave out what a resource names.
"""

import importlib.metadata
from collections.abc import Collection
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_engine.ledger import LedgerEntry, skip_unless_rank
from guided_engine.processors.adapters import UnsuitableError, factory_of

GROUP: Final = "vllm.logits_processors"


class UnusableError(Exception):
    """A package's entry point keeps the engine from starting; the message says whose it is and what to do."""


def _apply(config: PodConfig) -> None:
    skip_unless_rank(config)
    from vllm.v1.sample import logits_processor as v1  # noqa: PLC0415 - see compat/__init__.py
    from vllm.v1.worker.gpu.sample.logits_processor import loader as v2  # noqa: PLC0415 - as above

    ours = {processor.factory for processor in config.logits_processors}
    v1._load_logitsprocs_plugins = partial(_load, ours, v1.LogitsProcessor)  # noqa: SLF001 - this module's task
    v2._load_v2_logitsprocs_plugins = partial(_load, ours, v2.LogitsProcessor)  # noqa: SLF001 - as above


def _load(ours: Collection[str], interface: type[Any]) -> list[type[Any]]:
    """Return the classes of the installed entry points; vLLM asks the model runner's that it will use.

    Raises
    ------
    UnusableError
        One cannot be imported, or is of another interface.
    """
    from vllm.utils.torch_utils import guard_cuda_initialization  # noqa: PLC0415 - see compat/__init__.py

    classes = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.value in ours:
            continue
        try:
            with guard_cuda_initialization():
                found = entry.load()
        except Exception as error:
            raise _unusable(entry, f"which cannot be imported ({error}): repair or uninstall it") from error
        if not (isinstance(found, type) and issubclass(found, interface)):
            raise _unusable(entry, f"which this model runner cannot run: {_advice(found, entry.value)}")
        classes.append(found)
    return classes


def _unusable(entry: EntryPoint, why: str) -> UnusableError:
    package = f"package {entry.dist.name}" if entry.dist is not None else "a package"
    return UnusableError(f"{package} has the entry point {entry.name} = {entry.value} in {GROUP}, {why}")


def _advice(found: Any, named: str) -> str:
    try:
        factory_of(found)
    except UnsuitableError:
        return "uninstall the package"
    return f"name {named} in spec.logitsProcessors, or uninstall the package"


ENTRIES: Final = (
    LedgerEntry(
        name="installed-processors",
        why="an installed logits processor of vLLM's V1 interface ends the start of Model Runner V2, and the "
        "error does not name its package; one that spec.logitsProcessors names would run twice",
        goes_when="vLLM names the package, and has a list of entry points to leave out",
        apply=_apply,
    ),
)

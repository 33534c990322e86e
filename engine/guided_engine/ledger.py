"""The ledger of changes to vLLM: what each is, why, when it can go, and how it fared in this process."""

import importlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.names import ENV_BOOT
from guided_contract.wire import Hello, Patch, Role
from guided_engine.versions import versions

# In this order: the API server's side first, then the engine core's, then the ranks'.
MODULES: Final = (
    "api",
    "api_ends",
    "refusals",
    "tools",
    "validators",
    "core",
    "runner",
    "draft_model",
    "cpu",
)

_SCHEDULER: Final = "guidedDecoding.placement is Scheduler: vLLM's scheduler serves guided requests"
_log = logging.getLogger("guided_engine")
_outcomes: dict[str, Patch] = {}


class PatchSkippedError(Exception):
    """Raised by an entry's `apply` where the change is not wanted; the message says why (state Skipped)."""


def _made_by_the_rank(_config: PodConfig) -> None:
    """Nothing: GuidedWorker makes the change, on its runner, once it has a model."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One change to vLLM.

    Parameters
    ----------
    name
        Short and stable: shows in the resource's status.patches.
    why
        What breaks without it.
    goes_when
        The upstream change that makes this entry unnecessary.
    apply
        Makes the change. Raises PatchSkippedError where it is not wanted, anything else where it fails.
    upstream
        Link to vLLM's issue or pull request, or the patches to send there; "": there is none.
    ranks_only
        Not wanted in a pod with placement Scheduler.
    """

    name: str
    why: str
    goes_when: str
    apply: Callable[[PodConfig], None] = _made_by_the_rank
    upstream: str = ""
    ranks_only: bool = True


def all_entries() -> list[LedgerEntry]:
    """Return the entries of all modules, in order; a module that cannot be imported is one that fails."""
    entries: list[LedgerEntry] = []
    for module in MODULES:
        try:
            entries.extend(importlib.import_module(f"guided_engine.compat.{module}").ENTRIES)
        except Exception as error:  # noqa: BLE001 - a broken module must show in the status, not end the process
            entries.append(_unimportable(module, error))
    return entries


def apply_all(entries: Iterable[LedgerEntry], config: PodConfig) -> list[Patch]:
    """Apply each entry that this process has not tried yet, and return how all of `entries` fared.

    Never raises: an entry that does is recorded as Failed with its reason.
    """
    outcomes = []
    for entry in entries:
        if entry.name not in _outcomes:
            _outcomes[entry.name] = _apply(entry, config)
        outcomes.append(_outcomes[entry.name])
    return outcomes


def applied() -> list[Patch]:
    """Return how every entry tried so far in this process fared, in order of the attempt."""
    return list(_outcomes.values())


def hello(role: Role, **more: Any) -> Hello:
    """Return this process' Hello; outside of the launcher's children, nothing names the engine start."""
    said = {"boot": os.environ.get(ENV_BOOT, ""), "versions": versions(), "patches": applied(), **more}
    return Hello(role=role, pid=os.getpid(), **said)


def _apply(entry: LedgerEntry, config: PodConfig) -> Patch:
    if entry.ranks_only and config.guided_decoding.placement != "Rank":
        return Patch(name=entry.name, state="Skipped", reason=_SCHEDULER)
    try:
        entry.apply(config)
    except PatchSkippedError as reason:
        return Patch(name=entry.name, state="Skipped", reason=str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a change raises, vLLM is to start
        _log.exception("guidedmodel: the change %r to vLLM failed", entry.name)
        return Patch(name=entry.name, state="Failed", reason=f"{type(error).__name__}: {error}")
    return Patch(name=entry.name, state="Applied")


def _unimportable(module: str, error: Exception) -> LedgerEntry:
    def fail(_config: PodConfig) -> None:
        raise error

    return LedgerEntry(name=module, why="", goes_when="", apply=fail, ranks_only=False)

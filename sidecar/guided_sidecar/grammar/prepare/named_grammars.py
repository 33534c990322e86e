"""Named grammars: those of a folder, each kept compiled and loaded on every rank for as long as it is there.

A text that changed takes the old one's place when every rank has loaded it. While it cannot, the old one
serves.
"""

import asyncio
import dataclasses
import functools
import logging
from pathlib import Path
from typing import Final, Literal

from guided_contract import grammar_files
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.grammar_files import NamedText
from guided_contract.names import GRAMMAR_ARG
from guided_contract.status import GrammarStatus
from guided_contract.tasks import Living
from guided_contract.wire import Kind
from guided_sidecar.grammar.prepare.preparer import Preparer

_log = logging.getLogger(__name__)
_POLL_S: Final = 1.0
_RETRY_S: Final = 30.0  # after a refusal: the service may have been short of something, or of time
_MOST_LISTED: Final = 10
_MOST_NAME_CHARS: Final = 64  # of a client's, in an answer


@dataclasses.dataclass(slots=True, eq=False)
class _Grammar:
    """One name: what its file says, what is in service, and why that is not the same."""

    wanted: NamedText
    serving: NamedText | None = None
    key: str = ""  # of `serving`
    error: GuidedError | None = None
    task: asyncio.Task[None] | None = None

    def status(self, name: str) -> GrammarStatus:
        error = self.error
        state: Literal["Pending", "Ready", "Stale", "Failed"]
        if self.serving is None:
            waits = self.wanted.kind is None or error is None or error.code.retryable
            state = "Pending" if waits else "Failed"
        else:
            state = "Ready" if error is None else "Stale"
        reason = "" if error is None else error.message
        return GrammarStatus(name=name, state=state, reason=reason)


class NamedGrammars:
    """The grammars of a folder, by name; None: there are none.

    It has a file for each (see grammar_files), and is looked at every `poll_s` seconds; a refused text is
    tried again after `retry_s`.
    """

    def __init__(
        self, folder: Path | None, holder: Preparer, *, poll_s: float = _POLL_S, retry_s: float = _RETRY_S
    ) -> None:
        self._folder = folder
        self._holder = holder
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._grammars: dict[str, _Grammar] = {}
        self._awaited: set[str] = set()
        self._poller: Living | None = None

    @property
    def states(self) -> tuple[GrammarStatus, ...]:
        """How each grammar is, by name."""
        return tuple(grammar.status(name) for name, grammar in sorted(self._grammars.items()))

    @property
    def awaited(self) -> frozenset[str]:
        """Those that were there at the start and have not been in service yet."""
        return frozenset(self._awaited & self._grammars.keys())

    def start(self) -> None:
        """Begin with what the folder holds, and follow it."""
        if self._folder is not None:
            self._look(self._folder)
            self._awaited = set(self._grammars)
            self._poller = Living("named-grammars", functools.partial(self._follow_folder, self._folder))
            self._poller.start()

    async def stop(self) -> None:
        """Stop following; what is held goes with the service."""
        if self._poller is not None:
            await self._poller.stop()
        running = [grammar.task for grammar in self._grammars.values() if grammar.task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def resolve(self, name: str) -> tuple[Kind, str]:
        """Return kind and text of a grammar: those in service, else those that are to be.

        GuidedError: grammar_unknown, as there is no such name, or it has no text.
        """
        grammar = self._grammars.get(name)
        if grammar is None:
            raise _unknown(f"this model has no grammar {name[:_MOST_NAME_CHARS]!r}{self._hint()}")
        kind, text = grammar.serving or grammar.wanted
        if kind is None:
            raise _unknown(f"the grammar {name!r} has no text: {text}")
        return kind, text

    def _hint(self) -> str:
        if not self._grammars:
            return ", nor any other named grammar"
        more = ", ..." if len(self._grammars) > _MOST_LISTED else ""
        return f"; its grammars: {', '.join(sorted(self._grammars)[:_MOST_LISTED])}{more}"

    async def _follow_folder(self, folder: Path) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            self._look(folder)

    def _look(self, folder: Path) -> None:
        """Take in what has changed since the last look."""
        try:
            texts = _read(folder)
        except OSError as error:
            _log.warning("the named grammars in %s cannot be read: %s", folder, error)
            return
        for name in self._grammars.keys() - texts.keys():
            grammar = self._grammars.pop(name)
            if grammar.task is not None:
                grammar.task.cancel()
            if grammar.serving is not None:
                self._holder.release(grammar.key)
        for name, text in texts.items():
            grammar = self._grammars.setdefault(name, _Grammar(text))
            if grammar.task is not None and grammar.wanted == text:
                continue
            if grammar.task is not None:
                grammar.task.cancel()
            grammar.wanted = text
            grammar.task = asyncio.create_task(self._follow(name, grammar, text))

    async def _follow(self, name: str, grammar: _Grammar, wanted: NamedText) -> None:
        """Bring a grammar's wanted text into service, trying until it is."""
        while wanted != grammar.serving:
            try:
                if wanted.kind is None:
                    raise _unknown(wanted.text)  # noqa: TRY301 - as if it had been compiled
                held = await self._holder.hold(wanted.kind, wanted.text)
            except GuidedError as error:
                if grammar.error is None or grammar.error.message != error.message:
                    _log.warning("grammar %s: %s", name, error)
                grammar.error = error
                await asyncio.sleep(error.retry_after_s or self._retry_s)
            except Exception:  # noqa: BLE001 - a fault of ours costs this name alone, and for a while
                _log.exception("grammar %s: this is a bug", name)
                await asyncio.sleep(self._retry_s)
            else:
                if grammar.serving is not None:
                    self._holder.release(grammar.key)
                grammar.serving, grammar.key = wanted, held.key
                self._awaited.discard(name)
        grammar.error = None


def _read(folder: Path) -> dict[str, NamedText]:
    """Return the folder's grammars; one that cannot be read has no text, and the reason in its place."""
    texts = {}
    for path in sorted(folder.iterdir()):
        # What begins with a dot is the kubelet's own: the folders that it swaps.
        named = None if path.name.startswith(".") else grammar_files.parse(path.name)
        if named is None:
            continue
        name, kind = named
        try:
            texts[name] = NamedText(kind, path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            texts[name] = NamedText(None, f"{path.name} cannot be read: {error}")
    return texts


def _unknown(message: str) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_UNKNOWN, message, path=f"vllm_xargs.{GRAMMAR_ARG}")

"""Named grammars: those of a folder, each kept compiled and loaded on every rank for as long as it is there.

A text that changed takes the old one's place when every rank has loaded it. While it cannot, the old one
serves.
"""

import asyncio
import dataclasses
import difflib
import functools
import logging
from pathlib import Path
from typing import Final, Literal, Protocol

from guided_contract import grammar_files
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.grammar_files import NamedText
from guided_contract.names import GRAMMAR_ARG
from guided_contract.status import GrammarStatus
from guided_contract.tasks import Living
from guided_contract.wire import Kind
from guided_sidecar.grammar.prepare.cache import Entry

_log = logging.getLogger(__name__)
_POLL_S: Final = 1.0
_RETRY_S: Final = 30.0  # after a refusal: the service may have been short of something, or of time
_MOST_LISTED: Final = 10
_MOST_NAME_CHARS: Final = 64  # of a client's, in an answer


class Holder(Protocol):
    """Compiles grammars and keeps them on the ranks; the real one is preparer.Preparer."""

    async def hold(self, kind: Kind, spec: str) -> Entry:
        """Return when every rank has loaded a grammar, which stays there until `let_go`."""

    def let_go(self, key: str) -> None:
        """End one `hold`."""


@dataclasses.dataclass(slots=True)
class _Grammar:
    """One name: what its file says, what is in service, and why that is not the same."""

    wanted: NamedText
    serving: NamedText | None = None
    entry: Entry | None = None  # of `serving`
    error: GuidedError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> Literal["Pending", "Ready", "Stale", "Failed"]:
        if self.entry is not None:
            return "Ready" if self.error is None else "Stale"
        waits = self.wanted.kind is None or self.error is None or self.error.entry.retryable
        return "Pending" if waits else "Failed"


class NamedGrammars:
    """The grammars of a folder, by name.

    Parameters
    ----------
    folder
        With a file for each (see grammar_files); followed as it changes. None: there are none.
    holder
        Compiles them, and keeps them on the ranks.
    poll_s, retry_s
        Seconds until the folder is looked at again, and until a refused text is tried again.
    """

    def __init__(
        self,
        folder: Path | None,
        holder: Holder,
        *,
        poll_s: float = _POLL_S,
        retry_s: float = _RETRY_S,
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
        return tuple(_status(name, self._grammars[name]) for name in sorted(self._grammars))

    @property
    def awaited(self) -> frozenset[str]:
        """Those that were there at the start and have not been in service yet."""
        return frozenset(self._awaited & self._grammars.keys())

    def start(self) -> None:
        """Begin with what the folder holds, and follow it."""
        if self._folder is None:
            return
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

        Raises
        ------
        GuidedError
            grammar_unknown: there is no such name, or it has no text.
        """
        grammar = self._grammars.get(name)
        if grammar is None:
            raise _unknown(f"this model has no grammar {name[:_MOST_NAME_CHARS]!r}{self._hint(name)}")
        kind, text = grammar.serving or grammar.wanted
        if kind is None:
            raise _unknown(f"the grammar {name!r} has no text: {text}")
        return kind, text

    def _hint(self, name: str) -> str:
        close = difflib.get_close_matches(name[:_MOST_NAME_CHARS], self._grammars, n=3)
        if close:
            return f"; did you mean {' or '.join(close)}?"
        if not self._grammars:
            return ", and no other named grammar"
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
            self._remove(name)
        for name, text in texts.items():
            self._want(name, text)

    def _want(self, name: str, text: NamedText) -> None:
        grammar = self._grammars.get(name)
        if grammar is None:
            grammar = self._grammars[name] = _Grammar(text)
        elif grammar.wanted == text:
            return
        else:
            grammar.wanted = text
        if grammar.task is not None:
            grammar.task.cancel()
        grammar.task = asyncio.create_task(self._follow(name, grammar))

    def _remove(self, name: str) -> None:
        grammar = self._grammars.pop(name)
        if grammar.task is not None:
            grammar.task.cancel()
        if grammar.entry is not None:
            self._holder.let_go(grammar.entry.key)

    async def _follow(self, name: str, grammar: _Grammar) -> None:
        """Bring a grammar's wanted text into service, trying until it is."""
        wanted = grammar.wanted
        while wanted != grammar.serving:
            try:
                await self._serve(name, grammar, wanted)
            except GuidedError as error:
                if grammar.error is None or grammar.error.message != error.message:
                    _log.warning("grammar %s: %s", name, error)
                grammar.error = error
                await asyncio.sleep(error.retry_after_s or self._retry_s)
            except Exception:  # noqa: BLE001 - a fault of ours costs this name alone, and for a while
                _log.exception("grammar %s: this is a bug", name)
                await asyncio.sleep(self._retry_s)
        grammar.error = None

    async def _serve(self, name: str, grammar: _Grammar, text: NamedText) -> None:
        if text.kind is None:
            raise _unknown(text.text)
        entry = await self._holder.hold(text.kind, text.text)
        if grammar.entry is not None:
            self._holder.let_go(grammar.entry.key)
        grammar.serving, grammar.entry = text, entry
        self._awaited.discard(name)


def _status(name: str, grammar: _Grammar) -> GrammarStatus:
    done = grammar.entry.done if grammar.entry is not None else None
    took_ns = done.compile_ns + done.proof_ns if done is not None else 0
    reason = "" if grammar.error is None else grammar.error.message
    return GrammarStatus(name=name, state=grammar.state, compile_millis=round(took_ns / 1e6), reason=reason)


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

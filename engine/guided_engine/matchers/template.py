"""The processes beside a rank: a template, forked before the rank has threads or a device, and its children.

The template makes what does not change, and forks a process of matchers from that within milliseconds, again
when one has died. Both end with the rank, by the kernel.
"""

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import msgspec

from guided_contract import processes
from guided_contract.wire import Load, Unload
from guided_engine.matchers import messages
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.matchers.matching import Matching
from guided_engine.matchers.memory import SharedMemory
from guided_engine.matchers.messages import Ask
from guided_grammar import stack

NAME: Final = "guided-matchers"  # of each process, as ps shows it
_COMM: Final = Path("/proc/self/comm")
_CONNECTIONS: Final = 2  # of a process: its steps, and its grammars
_log = logging.getLogger("guided_engine")


class Made(NamedTuple):
    """What a template has made: the tokenizer's fingerprint by library, and what starts in each process."""

    fingerprints: dict[str, str]
    start: Callable[[], tuple[Matching, LoadedGrammars]]


class Ready(msgspec.Struct):
    """The template's first word: its fingerprints, or why there are none."""

    fingerprints: dict[str, str] = {}
    error: str = ""


class Forked(msgspec.Struct):
    """A process: its id, 0 if there is none; how the one before it ended (os.waitpid), None: none was."""

    pid: int
    status: int | None


def fork(make: Callable[[], Made]) -> socket.socket:
    """Fork the template of a rank; return the socket that orders its processes, each by two connections."""
    own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own, its:
        if os.fork() == 0:
            own.close()  # else it would not see that the rank has closed its end
            _ends(lambda: _template(its, make))
        return own.dup()


def _ends(run: Callable[[], object]) -> NoReturn:
    """Run, and end this process: nothing of the rank's ends with it."""
    try:
        run()
    except BaseException:  # noqa: BLE001 - whatever it is, the rank's own way up is not ours
        _log.exception("guidedmodel: a process of matchers failed")
        os._exit(1)
    os._exit(0)


def _template(control: socket.socket, make: Callable[[], Made]) -> None:
    processes.die_with_parent()
    _COMM.write_text("guided-template")
    for number in (signal.SIGINT, signal.SIGTERM):  # for the engine, which ends us
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 - the rank is told, and does not start
        _log.exception("guidedmodel: no process of matchers can be made")
        control.send(msgspec.msgpack.encode(Ready(error=f"{type(error).__name__}: {error}")))
        return
    control.send(msgspec.msgpack.encode(Ready(made.fingerprints)))
    gc.freeze()
    child = 0
    while True:
        asked, fds, _, _ = socket.recv_fds(control, 1, _CONNECTIONS)
        if not asked:
            return
        status = None
        if child:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        try:
            child = os.fork()
        except OSError:
            _log.exception("guidedmodel: no process of matchers can be forked")
            child = 0
        else:
            if child == 0:
                control.close()
                _ends(partial(_serve, made, *map(Connection, fds)))
        for fd in fds:
            os.close(fd)
        control.send(msgspec.msgpack.encode(Forked(child, status)))


def _serve(made: Made, steps: Connection, loads: Connection) -> None:
    """Serve one rank's steps and loads until it goes."""
    processes.die_with_parent()
    _COMM.write_text(NAME)
    matching, loaded_grammars = made.start()
    gc.freeze()
    ended = threading.Event()
    for name, work, arguments in (
        ("guided-steps", _serve_steps, (matching, steps)),
        ("guided-loads", _serve_loads, (loaded_grammars, matching.memory, loads)),
    ):
        stack.start(name, _until_it_ends, ended, work, *arguments)
    ended.wait()


def _until_it_ends(ended: threading.Event, work: Callable[..., None], *arguments: object) -> None:
    try:
        work(*arguments)
    except (EOFError, OSError):
        pass  # the rank has gone, or has given this process up
    except BaseException:  # noqa: BLE001 - another process takes over
        _log.exception("guidedmodel: a process of matchers failed")
    finally:
        ended.set()


def _serve_steps(matching: Matching, steps: Connection) -> None:
    while True:
        for message in messages.decode(steps.recv_bytes()):
            answer = matching.take(message)
            if answer is not None and isinstance(message, Ask):
                steps.send_bytes(messages.encode(answer))
                matching.answered(message.slot)


def _serve_loads(loaded_grammars: LoadedGrammars, memory: SharedMemory, loads: Connection) -> None:
    memory.loads[0] = 0
    while True:
        match messages.decode_load(loads.recv_bytes()):
            case Load() as load:
                memory.loads[0] = 1
                loaded = loaded_grammars.load(load)
                memory.loads[0] = 0
                loads.send_bytes(messages.encode(loaded))
            case Unload() as unload:
                loaded_grammars.unload(unload)

"""What one process tells another is read there: a field that nobody reads is a promise that nobody keeps."""

import ast
import collections
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from guided_contract import config, records, status, wire
from guided_operator.api import status as reported
from guided_operator.api.base import ReportedModel
from support.attribute_reads import Read, attribute_reads

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "engine" / "guided_contract"
ENGINE = ROOT / "engine" / "guided_engine"
SIDECAR = ROOT / "sidecar" / "guided_sidecar"
OPERATOR = ROOT / "operator" / "guided_operator"
# Who is told: of the wire's messages, the other side.
READERS: dict[type[msgspec.Struct], tuple[Path, ...]] = {
    **dict.fromkeys(typing.get_args(wire.ClientMessage), (SIDECAR,)),
    **dict.fromkeys(typing.get_args(wire.ServiceMessage), (ENGINE,)),
    wire.Chunk: (SIDECAR,),  # a sidecar asks another node's for artefacts
    wire.Ticket: (ENGINE,),  # from an API server to the ranks
    wire.Patch: (SIDECAR, OPERATOR),
}
OF_MODULES = {config: (ENGINE, SIDECAR), wire: (), records: (SIDECAR,), status: (OPERATOR,)}
# Read by what reads no attribute of it: msgspec refuses another version of the file; people look at the
# quarantine in /status, as docs/telemetry.md says.
READ_OTHERWISE = {
    "PodConfig.version",
    "PodStatus.quarantine",
    "QuarantineStatus.count",
    "QuarantineStatus.grammars",
    "QuarantinedGrammar.code",
    "QuarantinedGrammar.key",
    "QuarantinedGrammar.killed",
    "QuarantinedGrammar.seconds",
}


def fields() -> Iterator[tuple[str, type[msgspec.Struct], tuple[Path, ...]]]:
    for module, readers in OF_MODULES.items():
        for kind in vars(module).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, msgspec.Struct)
                and kind.__module__ == module.__name__
                and not kind.__subclasses__()
            ):
                for field in msgspec.structs.fields(kind):
                    yield field.name, kind, READERS.get(kind, readers)


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> set[Read]:
    folders = [str(folder) for folder in (CONTRACT, ENGINE, SIDECAR, OPERATOR)]
    return attribute_reads(folders, tmp_path_factory.mktemp("mypy"))


def names(kind: type, attribute: str) -> set[str]:
    """Return the names that an attribute has: of its class, and of those that it may be defined in."""
    return {f"{each.__module__}.{each.__qualname__}.{attribute}" for each in kind.__mro__}


def is_read(reads: set[Read], kind: type, attribute: str, readers: tuple[Path, ...]) -> bool:
    """Return whether one of the readers reads it, perhaps by a property of the class that does."""
    found = [read for read in reads if read.attribute in names(kind, attribute)]
    if any(read.file.is_relative_to(folder) for read in found for folder in readers):
        return True
    inside = {read.function for read in found if read.file.is_relative_to(CONTRACT)} - {attribute}
    return any(
        is_read(reads, kind, function, readers)
        if isinstance(vars(kind).get(function), property)
        else function in vars(kind)
        for function in inside
    )


def test_every_field_is_read_by_whom_it_is_for(reads: set[Read]) -> None:
    unread = [
        f"{kind.__qualname__}.{name}"
        for name, kind, readers in fields()
        if not is_read(reads, kind, name, readers)
    ]
    assert sorted(unread) == sorted(READ_OTHERWISE)


def test_every_field_of_the_resources_status_is_reported() -> None:
    """Its readers are people and kubectl; what nobody writes would say its default for ever."""
    written: dict[str, set[str]] = collections.defaultdict(set)
    named: set[str] = set()  # in mappings, where the report is made
    for node in ast.walk(ast.parse((OPERATOR / "reconcile" / "report.py").read_text())):
        if isinstance(node, ast.Dict):
            named |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    for file in OPERATOR.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                written[node.func.id] |= {keyword.arg for keyword in node.keywords if keyword.arg}
    models = [
        kind for kind in vars(reported).values() if isinstance(kind, type) and issubclass(kind, ReportedModel)
    ]
    silent = [
        f"{kind.__name__}.{name}"
        for kind in models
        for name, field in kind.model_fields.items()
        if not {name, field.alias} & (written[kind.__name__] | named)
    ]
    assert len(models) > 5
    assert silent == []

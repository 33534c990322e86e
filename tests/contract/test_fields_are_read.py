"""What one process tells another is read there: a field that nobody reads is a promise that nobody keeps."""

import ast
import collections
import importlib
import pkgutil
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import guided_contract
from guided_contract import config, records, status, wire
from guided_operator.api import status as reported
from guided_operator.api.base import ReportedModel
from support.attribute_reads import Read, attribute_reads

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "engine" / "guided_contract"
GRAMMAR = ROOT / "engine" / "guided_grammar"
ENGINE = ROOT / "engine" / "guided_engine"
SIDECAR = ROOT / "sidecar" / "guided_sidecar"
OPERATOR = ROOT / "operator" / "guided_operator"
IN_ENGINE, IN_SIDECAR = (ENGINE, GRAMMAR), (SIDECAR, GRAMMAR)
# Who is told what is sent, and all that it holds: of the wire's messages, the other side.
READERS: dict[type[msgspec.Struct], tuple[Path, ...]] = {
    **dict.fromkeys(typing.get_args(wire.ClientMessage), IN_SIDECAR),
    **dict.fromkeys(typing.get_args(wire.ServiceMessage), IN_ENGINE),
    **dict.fromkeys(typing.get_args(records.AnyRecord), IN_SIDECAR),
    wire.Ticket: IN_ENGINE,  # from an API server to the ranks
    config.PodConfig: (*IN_ENGINE, SIDECAR, CONTRACT / "otel_variables.py"),  # which both of them ask
    status.PodStatus: (OPERATOR,),
}
# What of a pod's page serves whoever asks that pod; of all pods metrics say it.
FOR_PEOPLE = {
    "Failure.time",
    "PodStatus.grammar_workers",
    "ProcessorStatus.failures",
    "WorkersStatus.ready",
    "WorkersStatus.restarts",
}


def structs(hint: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a value of this type may hold, from the type itself on."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
        for field in msgspec.structs.fields(hint):
            yield from structs(field.type)
    for part in typing.get_args(hint):
        yield from structs(part)


def fields() -> Iterator[tuple[str, type[msgspec.Struct], tuple[Path, ...]]]:
    for root, readers in READERS.items():
        for kind in structs(root):
            for field in msgspec.structs.fields(kind):
                yield field.name, kind, readers


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> set[Read]:
    folders = [str(folder) for folder in (CONTRACT, GRAMMAR, ENGINE, SIDECAR, OPERATOR)]
    return attribute_reads(folders, tmp_path_factory.mktemp("mypy"))


def names(kind: type, attribute: str) -> set[str]:
    """Return the names that an attribute has: of its class, and of those that it may be defined in."""
    return {f"{each.__module__}.{each.__qualname__}.{attribute}" for each in kind.__mro__}


def is_read(reads: set[Read], kind: type, attribute: str, readers: tuple[Path, ...]) -> bool:
    """Return whether one of the readers reads it, perhaps by a property or method of the class that does."""
    found = [read for read in reads if read.attribute in names(kind, attribute)]
    if any(read.file.is_relative_to(folder) for read in found for folder in readers):
        return True
    inside = {read.function for read in found if read.file.is_relative_to(CONTRACT)} - {attribute}
    return any(is_read(reads, kind, function, readers) for function in inside if function in vars(kind))


def test_every_field_is_read_by_whom_it_is_for(reads: set[Read]) -> None:
    unread = {
        f"{kind.__qualname__}.{name}"
        for name, kind, readers in fields()
        if not is_read(reads, kind, name, readers)
    }
    assert unread == FOR_PEOPLE


def test_every_struct_of_the_contract_is_part_of_what_is_sent() -> None:
    modules = [
        importlib.import_module(f"guided_contract.{one.name}")
        for one in pkgutil.iter_modules(guided_contract.__path__)
    ]
    defined = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
    }
    bases = {base for kind in defined for base in kind.__mro__[1:]}
    assert defined - bases == {kind for root in READERS for kind in structs(root)}


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

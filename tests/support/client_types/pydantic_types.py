"""Types as applications write them for pydantic, with values that a model must be able to answer."""

import dataclasses
import enum
import ipaddress
import pathlib
import re
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, NotRequired, TypeVar

import pydantic
from pydantic import BaseModel, Field, StringConstraints
from pydantic import dataclasses as pydantic_dataclasses
from typing_extensions import TypedDict


class Type(NamedTuple):
    """A type and JSON texts of values that it has.

    Attributes
    ----------
    beyond
        What the type asks of a value and its JSON Schema does not say: valid answers may fail it.
    """

    type: Any
    texts: Sequence[str]
    beyond: str = ""


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    DARK_BLUE = "dark blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Point(BaseModel):
    x: int
    y: float = 0.5


class Closed(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=40, description="What it is called", examples=["tea"])
    tags: list[str] = Field(default_factory=list, max_length=3)


class Open(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: int


class Aliased(BaseModel):
    from_: str = Field(alias="from")
    unit_price: float = Field(alias="unit-price")


class Line(BaseModel):
    sku: str
    count: int = Field(ge=1, le=9)


class Order(BaseModel):
    """An order, as a shop has it."""

    buyer: str
    lines: list[Line] = Field(min_length=1, max_length=3)
    colour: Colour | None = None
    place: Point | None = None


class Tree(BaseModel):
    value: int
    children: list["Tree"] = Field(default_factory=list, max_length=2)


class Folder(BaseModel):
    files: list["File"]


class File(BaseModel):
    name: str
    inside: Folder | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Circle(BaseModel):
    radius: float


class Square(BaseModel):
    side: int


ItemT = TypeVar("ItemT")


class Page(BaseModel, Generic[ItemT]):
    items: list[ItemT]
    next: str | None


@dataclasses.dataclass
class Plain:
    a: int
    b: str = "x"


@pydantic_dataclasses.dataclass
class Checked:
    a: Annotated[int, Field(gt=0)]
    b: tuple[int, int] = (0, 0)


class Loose(TypedDict, total=False):
    a: int
    b: str


class Strict(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Prices(pydantic.RootModel[dict[str, float]]):
    pass


ThirtyOptional: Final = pydantic.create_model(
    "ThirtyOptional", **{f"field_{number}": (int | None, None) for number in range(30)}
)

_UUID = '"1b4e28ba-2fa1-41d2-883f-0016d3cca427"'
_PETS = Annotated[Cat | Dog, Field(discriminator="kind")]

# By name, as the page shows them. What is no model is the field `value` of one.
TYPES: Final[dict[str, Type]] = {
    "str": Type(str, ['""', '"a b"', '"é\\n\\"漢"']),
    "int": Type(int, ["0", "-12", "123456789"]),
    "float": Type(float, ["0", "-1.5", "1e9"]),
    "bool": Type(bool, ["true", "false"]),
    "None": Type(None, ["null"]),
    "Any": Type(Any, ["null", "1", '{"a": [1]}']),
    "constr(min_length=3, max_length=8)": Type(
        Annotated[str, StringConstraints(min_length=3, max_length=8)], ['"abc"', '"abcdefgh"']
    ),
    "Field(max_length=2000)": Type(Annotated[str, Field(max_length=2000)], ['""', '"abc"']),
    "constr(pattern='^[A-Z]{2}-[0-9]+$')": Type(
        Annotated[str, StringConstraints(pattern="^[A-Z]{2}-[0-9]+$")], ['"AB-12"']
    ),
    "constr(pattern='[0-9]')": Type(Annotated[str, StringConstraints(pattern="[0-9]")], ['"1"', '"a1b"']),
    "constr(strip_whitespace, to_lower)": Type(
        Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)], ['"abc"']
    ),
    "bytes": Type(bytes, ['"abc"']),
    "SecretStr": Type(pydantic.SecretStr, ['"abc"']),
    "SecretBytes": Type(pydantic.SecretBytes, ['"abc"']),
    "Base64Bytes": Type(pydantic.Base64Bytes, ['"YWJj"'], "the text is Base64"),
    "Path": Type(pathlib.Path, ['"/a/b.txt"']),
    "AnyUrl": Type(pydantic.AnyUrl, ['"https://example.com/a?b=c"'], "a valid host"),
    "HttpUrl": Type(pydantic.HttpUrl, ['"https://example.com/"'], "http or https, and a valid host"),
    "UUID": Type(uuid.UUID, [_UUID]),
    "UUID4": Type(
        pydantic.UUID4, [_UUID], "the text is a UUID (format `uuid4` is pydantic's own; `UUID` is enforced)"
    ),
    "IPvAnyAddress": Type(pydantic.IPvAnyAddress, ['"10.0.0.1"', '"::1"'], "the text is an address"),
    "IPv4Address": Type(ipaddress.IPv4Address, ['"10.0.0.1"']),
    "IPv6Address": Type(ipaddress.IPv6Address, ['"::1"', '"fe80::1"']),
    "IPv4Network": Type(ipaddress.IPv4Network, ['"10.0.0.0/8"'], "the text is a network"),
    "re.Pattern": Type(re.Pattern, ['"[a-z]+"'], "the text is a regex"),
    "Json": Type(pydantic.Json[Any], ['"[1]"'], "the text is JSON"),
    "ByteSize": Type(pydantic.ByteSize, ["12"], "a size that 64 bits hold"),
    "complex": Type(complex, ['"1+2j"'], "a number that Python reads"),
    "conint(ge=0, le=150)": Type(Annotated[int, Field(ge=0, le=150)], ["0", "150"]),
    "PositiveInt": Type(pydantic.PositiveInt, ["1", "99"]),
    "conint(multiple_of=5)": Type(Annotated[int, Field(multiple_of=5)], ["0", "15"]),
    "NonNegativeFloat": Type(pydantic.NonNegativeFloat, ["0", "0.25"]),
    "confloat(gt=0, lt=1)": Type(Annotated[float, Field(gt=0, lt=1)], ["0.5"]),
    "confloat(multiple_of=0.5)": Type(Annotated[float, Field(multiple_of=0.5)], ["1.5", "2"]),
    "FiniteFloat": Type(pydantic.FiniteFloat, ["1.5"], "a number that a float holds"),
    "Decimal": Type(Decimal, ["1.5", '"1.50"'], "a text is a number"),
    "condecimal(max_digits=6, decimal_places=2)": Type(
        Annotated[Decimal, Field(max_digits=6, decimal_places=2)], ["1.5", '"1234.50"'], "how many digits"
    ),
    "date": Type(date, ['"2026-02-28"']),
    "datetime": Type(datetime, ['"2026-02-28T10:11:12Z"']),
    "AwareDatetime": Type(pydantic.AwareDatetime, ['"2026-02-28T10:11:12+01:00"']),
    "PastDate": Type(pydantic.PastDate, ['"2020-01-01"'], "that it is past"),
    "time": Type(time, ['"10:11:12Z"']),
    "timedelta": Type(timedelta, ['"P3DT4H"', '"PT5M"'], "no more than a timedelta holds"),
    "Enum": Type(Colour, ['"red"', '"dark blue"']),
    "IntEnum": Type(Level, ["1", "10"]),
    "Literal['a', 1, True]": Type(Literal["a", 1, True], ['"a"', "1", "true"]),
    "Literal['only']": Type(Literal["only"], ['"only"']),
    "int | None": Type(int | None, ["1", "null"]),
    "int | str": Type(int | str, ["1", '"a"']),
    "Circle | Square": Type(Circle | Square, ['{"radius": 1.5}', '{"side": 2}']),
    "Cat | Dog, discriminator='kind'": Type(
        _PETS, ['{"kind": "cat", "lives": 9}', '{"kind": "dog", "name": "Rex"}']
    ),
    "list[Cat | Dog, discriminator='kind']": Type(
        list[_PETS], ["[]", '[{"kind": "dog", "name": "Rex"}, {"kind": "cat", "lives": 1}]']
    ),
    "list[str]": Type(list[str], ["[]", '["a", "b"]']),
    "conlist(int, min_length=2, max_length=3)": Type(
        Annotated[list[int], Field(min_length=2, max_length=3)], ["[1, 2]", "[1, 2, 3]"]
    ),
    "list[list[int]]": Type(list[list[int]], ["[]", "[[1], []]"]),
    "deque[int]": Type(deque[int], ["[1]"]),
    "Sequence[int]": Type(Sequence[int], ["[1]"]),
    "set[str]": Type(set[str], ["[]", '["a", "b"]']),
    "frozenset[int]": Type(frozenset[int], ["[1, 2]"]),
    "set[Enum]": Type(set[Colour], ["[]", '["red", "green"]']),
    "conset(int, max_length=2)": Type(Annotated[set[int], Field(max_length=2)], ["[1, 2]"]),
    "tuple[int, str]": Type(tuple[int, str], ['[1, "a"]']),
    "tuple[int, ...]": Type(tuple[int, ...], ["[]", "[1, 2]"]),
    "NamedTuple": Type(Pair, ['[1, "a"]']),
    "dict[str, int]": Type(dict[str, int], ["{}", '{"a": 1}']),
    "dict[int, str]": Type(dict[int, str], ['{"1": "a"}'], "keys are numbers"),
    "dict[UUID, int]": Type(dict[uuid.UUID, int], [f"{{{_UUID}: 1}}"], "keys are UUIDs"),
    "dict[constr(pattern='^[a-z]+$'), int]": Type(
        dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], int], ["{}", '{"ab": 1}']
    ),
    "dict[constr(max_length=3), int]": Type(
        dict[Annotated[str, StringConstraints(max_length=3)], int], ["{}", '{"abc": 1}']
    ),
    "dict[Literal['a', 'b'], int]": Type(dict[Literal["a", "b"], int], ["{}", '{"a": 1}', '{"b": 2}']),
    "dict[Enum, int]": Type(dict[Colour, int], ["{}", '{"dark blue": 1}']),
    "dict[str, Any]": Type(dict[str, Any], ["{}", '{"a": {"b": [null]}}']),
    "dict[str, list[Model]]": Type(dict[str, list[Point]], ["{}", '{"a": [{"x": 1}]}']),
    "Field(min_length=1) of a dict": Type(
        Annotated[dict[str, int], Field(min_length=1, max_length=2)], ['{"a": 1}', '{"a": 1, "b": 2}']
    ),
    "Mapping[str, int]": Type(Mapping[str, int], ['{"a": 1}']),
    "defaultdict[str, list[int]]": Type(defaultdict[str, list[int]], ['{"a": [1]}']),
    "Counter[str]": Type(Counter[str], ['{"a": 1}']),
    "a model with defaults": Type(Point, ['{"x": 1}', '{"x": 1, "y": 2.5}']),
    "a model, extra='forbid'": Type(Closed, ['{"name": "tea"}', '{"name": "tea", "tags": ["a"]}']),
    "a model, extra='allow'": Type(Open, ['{"x": 1}', '{"x": 1, "more": [2]}']),
    "a model with aliases": Type(Aliased, ['{"from": "a", "unit-price": 1.5}']),
    "models in models": Type(
        Order, ['{"buyer": "b", "lines": [{"sku": "a", "count": 1}], "colour": "red", "place": {"x": 1}}']
    ),
    "a recursive model": Type(Tree, ['{"value": 1, "children": [{"value": 2}]}', '{"value": 1}']),
    "models that refer to each other": Type(
        Folder, ['{"files": [{"name": "a", "inside": {"files": []}}]}', '{"files": []}']
    ),
    "a generic model": Type(Page[Line], ['{"items": [{"sku": "a", "count": 2}], "next": null}']),
    "30 optional fields": Type(ThirtyOptional, ["{}", '{"field_3": 1, "field_29": null}']),
    "dataclass": Type(Plain, ['{"a": 1}', '{"a": 1, "b": "c"}']),
    "pydantic's dataclass": Type(Checked, ['{"a": 1}', '{"a": 1, "b": [1, 2]}']),
    "TypedDict, total=False": Type(Loose, ["{}", '{"b": "c"}']),
    "TypedDict with NotRequired": Type(Strict, ['{"a": 1}', '{"a": 1, "b": "c"}']),
    "RootModel[list[int]]": Type(Numbers, ["[]", "[1, 2]"]),
    "RootModel[dict[str, float]]": Type(Prices, ["{}", '{"a": 1.5}']),
}


def adapter(one: Type) -> pydantic.TypeAdapter[Any]:
    """Return what reads and judges a type's JSON: of a model that has it, where it is no model."""
    if isinstance(one.type, type) and issubclass(one.type, BaseModel):
        return pydantic.TypeAdapter(one.type)
    return pydantic.TypeAdapter(pydantic.create_model("Answer", value=(one.type, ...)))


def texts(one: Type) -> Sequence[str]:
    """Return JSON texts that a type's model has."""
    if isinstance(one.type, type) and issubclass(one.type, BaseModel):
        return one.texts
    return [f'{{"value": {text}}}' for text in one.texts]

"""Schemas as applications have them: pydantic's models, OpenAI's strict tools, components of OpenAPI.

Made by pydantic, or by hand as the other two write them, from the words of twelve trades and fixed seeds;
descriptions and other annotations are kept.
"""

import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

import pydantic
from pydantic import BaseModel, Field

Schema = dict[str, Any]
_TRADES: Final = {
    "Order": "order_id customer_email placed_at currency total items shipping_address status coupon gift",
    "Invoice": "invoice_number issued_on due_on seller buyer lines tax_rate net_amount iban notes",
    "Patient": "patient_id birth_date blood_type allergies medications weight_kg insurer contact smoker",
    "Ticket": "ticket_id title reporter assignee priority labels created_at comments severity component",
    "Flight": "flight_number origin destination departs_at arrives_at cabin seats price baggage stops",
    "Recipe": "name servings ingredients steps minutes difficulty cuisine tags calories author",
    "Contract": "parties signed_on value governing_law term_months renewal clauses exhibits confidential",
    "Device": "serial model firmware address_ip location last_seen sensors battery owner settings",
    "Candidate": "full_name email phone skills education experience salary links available_from",
    "Property": "address rooms area_m2 rent deposit pets heating energy_class photos landlord",
    "Claim": "claim_id policy occurred_on damages witnesses amount photos police_report fraud_score",
    "Lesson": "subject grade objectives materials exercises duration teacher homework quiz",
}
_WORDS: Final = [
    "basic",
    "full",
    "partial",
    "open",
    "closed",
    "north",
    "south",
    "urgent",
    "normal",
    "low",
    "high",
    "draft",
    "final",
]


def pydantic_schemas(count: int) -> Iterator[Schema]:
    """Yield the schemas of so many models, all different."""
    for number in range(count):
        chance = random.Random(f"pydantic {number}")
        yield _Models(chance).model(2).model_json_schema()


def strict_tools(count: int) -> Iterator[Schema]:
    """Yield parameters of tools as OpenAI asks for them: closed, all required, what may lack is null."""
    for number in range(count):
        yield _strict(random.Random(f"tool {number}"), 2)


def components(count: int) -> Iterator[Schema]:
    """Yield components of OpenAPI: of 3.0 with nullable and example, of 3.1 with lists of types."""
    for number in range(count):
        yield _Component(random.Random(f"component {number}"), is_old=number % 2 == 0).schema()


def _names(chance: random.Random) -> tuple[str, list[str]]:
    trade = chance.choice(sorted(_TRADES))
    fields = _TRADES[trade].split()
    return trade, chance.sample(fields, chance.randint(4, len(fields)))


def _enum(chance: random.Random) -> list[str]:
    return chance.sample(_WORDS, chance.randint(2, 5))


class _Models:
    """Makes pydantic's models."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0

    def model(self, depth: int) -> Any:
        trade, names = _names(self._chance)
        self._number += 1
        fields: dict[str, Any] = {name: self._field(name, depth) for name in names}
        extra: Any = self._chance.choice(["ignore", "ignore", "forbid"])
        made = pydantic.create_model(
            f"{trade}{self._number}",
            __config__=pydantic.ConfigDict(extra=extra),
            __doc__=f"A {trade.lower()} as the back office knows it.",
            **fields,
        )
        if depth == 2 and self._chance.random() < 0.1:
            return _tree(f"{trade}Tree", made)
        return made

    def _field(self, name: str, depth: int) -> Any:
        chance = self._chance
        kind = self._type(depth)
        described = Field(description=f"The {name.replace('_', ' ')}, as written in the document.")
        if chance.random() < 0.3:
            return (kind | None, Field(default=None, description=f"The {name.replace('_', ' ')}, if known."))
        return (kind, described)

    def _type(self, depth: int) -> Any:
        chance = self._chance
        if depth and chance.random() < 0.3:
            return chance.choice([self._nested, self._list, self._union, self._map])(depth - 1)
        return chance.choice(_SCALARS)(chance)

    def _nested(self, depth: int) -> Any:
        return self.model(depth)

    def _list(self, depth: int) -> Any:
        inner = self._type(depth)
        return Annotated[list[inner], Field(min_length=1)] if self._chance.random() < 0.3 else list[inner]  # type: ignore[valid-type]

    def _map(self, depth: int) -> Any:
        return dict[str, self._type(depth)]  # type: ignore[misc]

    def _union(self, _depth: int) -> Any:
        self._number += 1
        make: Any = pydantic.create_model
        others = [self._chance.choice(["amount", "text", "code"]) for _ in range(3)]
        kinds = [
            make(
                f"{word.title()}{self._number}",
                kind=(Literal[word], ...),
                **{other: (self._chance.choice([str, int]), ...)},
            )
            for word, other in zip(_enum(self._chance), others, strict=False)
        ]
        union: Any = kinds[0]
        for other in kinds[1:]:
            union |= other
        return Annotated[union, Field(discriminator="kind")] if len(kinds) > 1 else union


def _tree(name: str, inner: type[BaseModel]) -> Any:
    """Return a model that holds itself."""
    spaces: dict[str, Any] = {"inner": inner, "BaseModel": BaseModel}
    code = f"class {name}(BaseModel):\n    value: inner\n    children: list['{name}'] = []\n"
    exec(code, spaces)
    made = spaces[name]
    made.model_rebuild(_types_namespace=spaces)
    return made


def _enumeration(chance: random.Random) -> Any:
    words = _enum(chance)
    return enum.Enum("E" + "".join(word.title() for word in words), {word: word for word in words})


_SCALARS: Final[tuple[Callable[[random.Random], Any], ...]] = (
    *[lambda _: str] * 5,
    *[lambda _: int] * 2,
    *[lambda _: float] * 2,
    *[lambda _: bool] * 2,
    *[_enumeration] * 3,
    lambda chance: Literal[tuple(_enum(chance))],
    lambda chance: Annotated[str, Field(max_length=chance.choice([20, 80, 200, 2000]))],
    lambda chance: Annotated[str, Field(min_length=1, max_length=chance.choice([40, 120]))],
    lambda chance: Annotated[
        str, Field(pattern=chance.choice([r"^[A-Z]{3}$", r"^\d{5}(-\d{4})?$", r"^[a-z_]+$"]))
    ],
    lambda chance: Annotated[int, Field(ge=0, le=chance.choice([5, 100, 10_000]))],
    lambda _: Annotated[float, Field(gt=0)],
    lambda chance: Annotated[int, Field(multiple_of=chance.choice([5, 10]))],
    lambda _: dt.date,
    lambda _: dt.datetime,
    lambda _: dt.time,
    lambda _: dt.timedelta,
    lambda _: uuid.UUID,
    lambda _: decimal.Decimal,
    lambda _: pydantic.AnyUrl,
    lambda _: bytes,
    lambda _: pydantic.SecretStr,
    lambda _: pathlib.Path,
    lambda _: pydantic.IPvAnyAddress,
    lambda _: ipaddress.IPv4Address,
    lambda _: list[str],
    lambda _: dict[str, int],
    lambda _: tuple[float, float],
    lambda chance: set[_enumeration(chance)],  # type: ignore[misc]
    lambda _: dict[str, Any],
    lambda _: Any,
)


def _strict(chance: random.Random, depth: int) -> Schema:
    _, names = _names(chance)
    properties: Schema = {}
    for name in names:
        part = _strict_part(chance, depth)
        properties[name] = {**part, "description": f"The {name.replace('_', ' ')} to act on."}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _strict_part(chance: random.Random, depth: int) -> Schema:
    kind = chance.randrange(9 if depth else 6)
    if kind < 2:
        return {"type": chance.choice(["string", "number", "integer", "boolean"])}
    if kind < 4:
        return {"type": [chance.choice(["string", "number", "integer"]), "null"]}
    if kind < 6:
        return {"type": "string", "enum": _enum(chance)}
    if kind < 7:
        return {"type": "array", "items": _strict_part(chance, 0)}
    if kind < 8:
        return {"anyOf": [_strict(chance, depth - 1), {"type": "null"}]}
    return _strict(chance, depth - 1)


class _Component:
    """Makes a component with those that it refers to."""

    def __init__(self, chance: random.Random, *, is_old: bool) -> None:
        self._chance = chance
        self._is_old = is_old

    def schema(self) -> Schema:
        chance = self._chance
        named = {f"Part{number}": self._object(refers=False) for number in range(3)}
        made = self._object(refers=True)
        if chance.random() < 0.3:
            made = {"allOf": [{"$ref": "#/$defs/Part0"}, made]}
        if chance.random() < 0.3:
            for number, part in enumerate(named.values()):
                part["properties"]["kind"] = {"type": "string", "enum": [f"part{number}"]}
                part["required"] = sorted({*part.get("required", ()), "kind"})
            union = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in named]}
            made.setdefault("properties", {})["detail"] = union | {"discriminator": {"propertyName": "kind"}}
        return {**made, "$defs": named}

    def _object(self, *, refers: bool) -> Schema:
        chance = self._chance
        trade, names = _names(chance)
        made: Schema = {
            "type": "object",
            "title": trade,
            "properties": {name: self._part(refers=refers) for name in names},
            "required": sorted(chance.sample(names, 2)),
            "example": {names[0]: "x"},
        }
        kind = chance.random()
        if kind < 0.15:
            made["additionalProperties"] = {"type": "string"}
        elif kind < 0.3:
            made["minProperties"] = 1
        elif kind < 0.4:
            made["dependentRequired"] = {names[0]: [names[1]]}
        elif kind < 0.45:
            made |= {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
        return made

    def _part(self, *, refers: bool) -> Schema:
        chance = self._chance
        ways: list[Callable[[], Schema]] = [
            lambda: {"type": "string", "maxLength": chance.choice([16, 255, 4096])},
            lambda: {
                "type": "string",
                "format": chance.choice(["date", "date-time", "uuid", "email", "uri", "byte"]),
            },
            lambda: {"type": "integer", "format": "int64", "minimum": 0, "maximum": 9223372036854775807},
            lambda: {"type": "integer", "format": "int32", "default": 1, "exclusiveMaximum": 100},
            lambda: {"type": "number", "format": "double", "exclusiveMinimum": 0},
            lambda: {"type": "boolean", "readOnly": True},
            lambda: {"type": "string", "enum": _enum(chance), "example": "draft"},
            lambda: {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10},
            lambda: {"type": "array", "items": {"enum": _enum(chance)}, "uniqueItems": True},
            lambda: {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 20},
            lambda: {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
            lambda: {
                "type": "array",
                "prefixItems": [{"type": "number"}, {"type": "number"}],
                "items": False,
            },
        ]
        if refers:
            reference = {"$ref": f"#/$defs/Part{chance.randrange(3)}"}
            ways += [lambda: reference, lambda: {"type": "array", "items": reference}] * 2
        part = chance.choice(ways)()
        if "$ref" in part or chance.random() > 0.2:
            return part
        if self._is_old:
            return {**part, "nullable": True}
        return {**part, "type": [part["type"], "null"]} if "type" in part and "enum" not in part else part

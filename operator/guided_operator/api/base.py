"""The shapes that fields of the API share: models, durations, quantities, names, lists of named things."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from guided_operator.api.quantity import QUANTITY_PATTERN, canonical

# Go's duration, without signs and fractions: what Kubernetes users know.
DURATION_PATTERN: Final = r"^([0-9]{1,9}(ms|s|m|h)){1,4}$"
BYTES_PATTERN: Final = r"^[1-9][0-9]{0,6}(Ki|Mi|Gi|Ti)$"
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class ApiModel(BaseModel):
    """Base of what users write: camelCase, immutable, no unknown fields, no silent conversion of types."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        protected_namespaces=(),
        strict=True,
        use_attribute_docstrings=True,  # a field's description is the text below it
    )

    @model_validator(mode="before")
    @classmethod
    def _as_stored(cls, given: Any) -> Any:
        """Read null as nothing: so the API server stores a known field."""
        if not isinstance(given, dict):
            return given
        known = {field.alias for field in cls.model_fields.values()}
        return {name: value for name, value in given.items() if value is not None or name not in known}


class ReportedModel(ApiModel):
    """Base of what the operator reports. Another release may have written it: unknown fields are dropped."""

    model_config = ConfigDict(extra="ignore")


def seconds(duration: str) -> float:
    """Return a duration such as "1m30s" in seconds.

    Raises
    ------
    ValueError
        The text is not a duration.
    """
    if not re.fullmatch(DURATION_PATTERN, duration):
        raise ValueError(f'"{duration}" is not a duration such as "90s", "1m30s" or "500ms"')
    parts = re.findall(r"([0-9]+)(ms|s|m|h)", duration)
    return round(sum(int(number) * _UNIT_S[unit] for number, unit in parts), 3)


Duration = Annotated[str, StringConstraints(max_length=32, pattern=DURATION_PATTERN)]
Bytes = Annotated[str, StringConstraints(max_length=32, pattern=BYTES_PATTERN)]


def between(least: str, most: str, read: Callable[[str], float | Fraction] = seconds) -> AfterValidator:
    """Return inclusive bounds of a Duration, or, read as `amount`, of Bytes: Python alone knows them."""

    def check(value: str) -> str:
        if not read(least) <= read(value) <= read(most):
            raise ValueError(f"must be between {least} and {most}, is {value}")
        return value

    return AfterValidator(check)


def _quantity_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[
    str,
    StringConstraints(max_length=32),
    AfterValidator(canonical),
    BeforeValidator(_quantity_text),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
        }
    ),
]


def text(most: int, *, pattern: str | None = None, least: int = 1) -> StringConstraints:
    """Return the bounds of a string field; without bounds the API server cannot estimate the cost of CEL.

    Parameters
    ----------
    most, least
        Length in characters, both inclusive.
    pattern
        A regular expression that both Python and the API server (RE2) understand.
    """
    return StringConstraints(min_length=least or None, max_length=most, pattern=pattern)


ObjectName = Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
LabelValue = Annotated[str, text(63, least=0)]


class SecretKey(ApiModel):
    """A key of a Secret in this namespace."""

    name: Annotated[str, text(253)]
    """Name of the Secret."""
    key: Annotated[str, text(253)]
    """Key in the Secret."""


def int_or_string(least: int, most: int, pattern: str, *, number: str, word: str) -> GetPydanticSchema:
    """Return the shape of a number within inclusive bounds, or of a text of at most four characters.

    `number` and `word` say for people what each of the two is.
    """

    def check(value: object) -> object:
        if isinstance(value, str):
            if not re.fullmatch(pattern, value):
                raise ValueError(f'"{value}" is neither {number} nor {word}')
        elif not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be {number}, or {word}")  # noqa: TRY004 - what pydantic takes
        elif not least <= value <= most:
            raise ValueError(f"must be between {least} and {most}")
        return value

    schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": least,
        "maximum": most,
        "pattern": pattern,
        "maxLength": 4,
    }
    return GetPydanticSchema(
        lambda _type, _handler: core_schema.no_info_plain_validator_function(check),
        lambda _schema, _handler: schema,
    )


def _unique(items: list[Any]) -> list[Any]:
    names = [item["name"] if isinstance(item, dict) else item.name for item in items]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"names must be unique; duplicate: {', '.join(twice)}")
    return items


_Item = TypeVar("_Item")
# A list whose items the API server merges by their names: it refuses two of one name.
ByName = Annotated[
    list[_Item],
    AfterValidator(_unique),
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
]

"""The shapes that fields of the API share: models, durations, quantities and names."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from guided_operator.api.quantity import QUANTITY_PATTERN, amount, canonical

# Go's duration, without signs and fractions: what Kubernetes users know, and what CEL can compare.
DURATION_PATTERN: Final = r"^([0-9]{1,9}(ms|s|m|h)){1,4}$"
_BYTES_PATTERN: Final = r"^[1-9][0-9]{0,6}(Ki|Mi|Gi|Ti)$"
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


@dataclass(frozen=True)
class _Bounds:
    """Inclusive bounds of a field of text that stands for an amount.

    The server checks them by CEL, Python by the same two texts.
    """

    least: str
    most: str
    _pattern: ClassVar[str]
    _rule: ClassVar[str]  # CEL, with {least} and {most}

    @staticmethod
    def _read(text: str) -> float:
        raise NotImplementedError

    def _check(self, value: str) -> str:
        read = self._read
        if not read(self.least) <= read(value) <= read(self.most):
            raise ValueError(f"must be between {self.least} and {self.most}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        rule = {
            "rule": self._rule.format(least=self.least, most=self.most),
            "message": f"must be between {self.least} and {self.most}",
        }
        bounds = {"pattern": self._pattern, "maxLength": 32, "x-kubernetes-validations": [rule]}
        return {**handler(schema), **bounds}


class Between(_Bounds):
    """Bounds of a duration field, both inclusive: `Annotated[str, Between("1s", "1m")]`."""

    _pattern = DURATION_PATTERN
    _rule = "duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"

    @staticmethod
    def _read(text: str) -> float:
        return seconds(text)


class BytesBetween(_Bounds):
    """Bounds of a field of bytes, both inclusive: `Annotated[str, BytesBetween("64Mi", "1Gi")]`.

    Whole binary amounts such as "512Mi": what the server's CEL and Python read alike.
    """

    _pattern = _BYTES_PATTERN
    _rule = (
        "quantity(self).compareTo(quantity('{least}')) >= 0"
        " && quantity(self).compareTo(quantity('{most}')) <= 0"
    )

    @staticmethod
    def _read(text: str) -> float:
        if not re.fullmatch(_BYTES_PATTERN, text):
            raise ValueError(f'"{text}" is not an amount such as "512Mi" or "2Gi"')
        return float(amount(text))


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


def unique_names(items: list[Any]) -> list[Any]:
    """Refuse a list-map with two items of one name, as the server does.

    Raises
    ------
    ValueError
        A name stands twice.
    """
    _refuse_twice([item.name for item in items], "names")
    return items


def distinct(items: list[str]) -> list[str]:
    """Refuse a list-set that has an item twice, as the server does.

    Raises
    ------
    ValueError
        An item stands twice.
    """
    _refuse_twice(items, "items")
    return items


def _refuse_twice(words: list[str], what: str) -> None:
    twice = sorted({word for word in words if words.count(word) > 1})
    if twice:
        raise ValueError(f"{what} must be unique; duplicate: {', '.join(twice)}")

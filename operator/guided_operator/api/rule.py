"""A rule of a GuidedModel beyond types: data of the schema, in CEL, which the API server evaluates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ConfigDict, JsonValue


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a GuidedModel: where, as `spec.engine.args[2]`, and why."""

    field: str
    message: str

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.field}: {self.message}"


class Rule(NamedTuple):
    """What must hold of the model that has the rule in its `model_config`.

    Parameters
    ----------
    field
        The part of the model that is reported, as users write it; "" is the model itself.
    message
        What must hold, and what to do.
    cel
        CEL that is true if the rule is met; `self` is the model, as the API server stores it.
    """

    field: str
    message: str
    cel: str

    def as_schema(self) -> dict[str, JsonValue]:
        """Return the rule as a structural schema has it."""
        at: dict[str, JsonValue] = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **at}


def rules(*each: Rule) -> ConfigDict:
    """Return the `model_config` of a model that has these rules."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [rule.as_schema() for rule in each]})


def cel_text(value: str) -> str:
    """Return a text, such as a pattern, as CEL writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cel_list(values: Iterable[str]) -> str:
    """Return texts as CEL writes a list of them."""
    return "[" + ", ".join(cel_text(value) for value in values) + "]"

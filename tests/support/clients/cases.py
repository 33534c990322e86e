"""What is asked through client libraries; both environments read it, so it imports pydantic alone."""

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated, Any, Final, Literal, NamedTuple
from uuid import UUID

from pydantic import AnyUrl, BaseModel, EmailStr, Field, TypeAdapter, UrlConstraints, WithJsonSchema

# Texts are bounded and the rest is listed: the tiny model then comes to the end of every answer.
Short = Annotated[str, Field(max_length=12)]


class Card(BaseModel):
    """A card."""

    kind: Literal["alpha", "beta", "gamma"]
    count: int = Field(ge=0, le=99)
    tags: list[Literal["a", "b", "c"]] = Field(max_length=3)
    label: Short


class Line(BaseModel):
    sku: Short
    count: int = Field(ge=1, le=9)


class Order(BaseModel):
    """An order."""

    buyer: Short
    lines: list[Line] = Field(min_length=1, max_length=2)
    paid: bool
    urgent: bool | None


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    good: bool


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Home(BaseModel):
    """A home with a pet."""

    pet: Pet


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Moment(BaseModel):
    at: datetime
    day: date
    hour: time


# As pydantic 2.12 writes it; later ones write any text. Bounded, as all texts here.
_DECIMAL: Final = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "maxLength": 8}

# Of which pydantic asks more than the format says: a dot in the host.
_MAIL: Final = {"type": "string", "format": "email", "pattern": r"^[a-z]{1,8}@[a-z]{2,8}\.com$"}


class Everyday(BaseModel):
    """What applications have in their fields."""

    id: UUID
    when: Moment
    price: Annotated[Decimal, WithJsonSchema(_DECIMAL)]
    site: Annotated[AnyUrl, UrlConstraints(max_length=30)]
    mail: Annotated[EmailStr, WithJsonSchema(_MAIL)]
    address: IPv4Address
    colours: set[Colour]
    size: Literal["s", "m", "l"]
    code: Annotated[str, Field(pattern="^[A-Z]{2}-[0-9]+$", min_length=4, max_length=8)]
    line: Line | None


BROKEN: Final = {"type": "object", "properties": {"age": {"type": "integr"}}, "required": ["age"]}
UNENFORCED: Final = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}},
    "required": ["ids"],
    "additionalProperties": False,
}
PROMPT: Final = "Give me the JSON card for alice\n"
MAX_TOKENS: Final = 900  # of the pod's 2,048, with white space between tokens of JSON
SHAPES: Final[dict[str, Any]] = {
    "card": Card,
    "order": Order,
    "home": Home,
    "pet": Pet,
    "everyday": Everyday,
    "object": dict[str, Any],
}


class Case(NamedTuple):
    """One call of a client library, as its documentation shows it.

    Attributes
    ----------
    gives
        What the library must return: an object of a shape, or the fields of its error.
    """

    library: str
    call: str
    gives: str | dict[str, Any]


def error(param: str, code: str = "grammar_invalid", status: int = 400) -> dict[str, Any]:
    """Return what an error says of itself."""
    return {"status": status, "code": code, "param": param}


_AGE: Final = "properties.age.type"
_CHAT: Final = "response_format.json_schema.schema"
_TOOL: Final = "tools[0].function.parameters"
_UNIQUE: Final = f"{_TOOL}.properties.ids.uniqueItems"
CASES: Final = (
    Case("openai", "chat.completions.parse, n=2", "card"),
    Case("openai", "chat.completions.parse, everyday types", "everyday"),
    Case("openai", "chat.completions.parse, too few tokens", {"class": "LengthFinishReasonError"}),
    Case("openai", "chat.completions.stream", "order"),
    Case("openai", "response_format json_object", "object"),
    Case("openai", "a tool by its name", "order"),
    Case("openai", "two tools, tool_choice required", "pet"),
    Case("openai", "pydantic_function_tool (strict), everyday types", "everyday"),
    Case("openai", "pydantic_function_tool (strict), stream", "card"),
    Case("openai", "a broken schema", error(f"{_CHAT}.{_AGE}")),
    Case("openai", "a broken schema, stream", error(f"{_CHAT}.{_AGE}")),
    Case("openai", "a tool that is not enforced", error(_UNIQUE, "grammar_unsupported")),
    Case("openai", "responses.parse, everyday types", "everyday"),
    Case("openai", "responses.stream", "order"),
    Case("openai", "responses.parse, a strict tool", "home"),
    Case("openai", "responses, a broken schema", error(f"text.format.schema.{_AGE}")),
    Case("anthropic", "messages.parse", "card"),
    Case("anthropic", "messages.stream, output_format", "order"),
    Case("anthropic", "a tool, everyday types", "everyday"),
    Case("anthropic", "a strict tool by its name, stream", "home"),
    Case("anthropic", "a broken schema", error(f"output_config.format.schema.{_AGE}")),
    Case("instructor", "Mode.TOOLS, everyday types", "everyday"),
    Case("instructor", "Mode.JSON_SCHEMA", "card"),
    Case("instructor", "Mode.RESPONSES_TOOLS", "card"),
    Case("instructor", "Mode.TOOLS, create_partial", "card"),
    Case("pydantic-ai", "output_type (a tool), everyday types", "everyday"),
    Case("pydantic-ai", "a union (two tools)", "pet"),
    Case("pydantic-ai", "NativeOutput, run_stream", "card"),
    Case("pydantic-ai", "NativeOutput by Responses", "home"),
    Case("langchain-openai", "function_calling, everyday types", "everyday"),
    Case("langchain-openai", "json_schema, stream", "order"),
    Case("langchain-openai", "json_schema by Responses", "home"),
    Case("langchain-openai", "json_mode", "object"),
    Case("langchain-openai", "bind_tools, tool_choice any", "pet"),
)  # fmt: skip


def schema(shape: str) -> dict[str, Any]:
    """Return the JSON Schema of a shape."""
    return TypeAdapter(SHAPES[shape]).json_schema()

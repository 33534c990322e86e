"""What is asked for through client libraries; their own Python reads it, so it imports pydantic alone."""

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import AnyUrl, BaseModel, EmailStr, Field, UrlConstraints, WithJsonSchema


# Texts are bounded and the rest is listed: the tiny model then comes to the end of every answer.
class Card(BaseModel):
    """A card."""

    kind: Literal["alpha", "beta", "gamma"]
    count: int = Field(ge=0, le=99)
    tags: list[Literal["a", "b", "c"]] = Field(max_length=3)
    label: str = Field(max_length=12)  # which anthropic drops: it ends by itself


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    good: bool


class Home(BaseModel):
    """A home with a pet."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


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
    pet: Cat | None

"""Kubernetes' quantities in the form in which the API server returns them.

A wanted object that says "0.5" where the server says "500m" would look different for ever. Follows
apimachinery's `resource.Quantity`; tests/cluster compares with the server.
"""

import functools
import re
from fractions import Fraction
from math import ceil
from typing import Final

# As in Kubernetes' own schemas.
QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO: Final = 10**9
_LARGEST: Final = 2**63 - 1  # a larger amount is cut to this by the server


def amount(quantity: str) -> Fraction:
    """Return a quantity as a number, rounded away from zero to 1e-9.

    Raises
    ------
    ValueError
        The text is not a quantity.
    """
    return _parse(quantity)[0]


def canonical(quantity: str) -> str:
    """Return a quantity as the API server would.

    Raises
    ------
    ValueError
        The text is not a quantity.
    """
    value, suffix = _parse(quantity)
    if not value:
        return "0"
    if suffix in _BINARY and value.denominator == 1 and abs(value) >= 1024:
        return _binary(int(value))
    return _decimal(value, exponent_form=suffix[:1] in ("e", "E") and suffix not in _DECIMAL)


@functools.lru_cache(maxsize=1024)  # the same few amounts are in every pod
def _parse(quantity: str) -> tuple[Fraction, str]:
    match = re.fullmatch(r"([+-]?[0-9.]+)([A-Za-z]*|[eE][+-]?[0-9]+)", quantity)
    if match is None or not re.fullmatch(QUANTITY_PATTERN, quantity):
        raise ValueError(f'"{quantity}" is not a quantity such as "500m", "2" or "4Gi"')
    number, suffix = match.groups()
    value = Fraction(number) * _scale(suffix)
    nanos = ceil(abs(value) * _NANO)
    limited = min(Fraction(nanos, _NANO), Fraction(_LARGEST))
    return (limited if value >= 0 else -limited), suffix


def _scale(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    if abs(exponent) > 18:  # beyond what the server can hold
        raise ValueError(f'the exponent of "{suffix}" is out of range')
    return Fraction(10) ** exponent


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < 60:
        value //= 1024
        power += 10
    suffix = next((suffix for suffix, bits in _BINARY.items() if bits == power), "")
    return f"{value}{suffix}"


def _decimal(value: Fraction, *, exponent_form: bool) -> str:
    nanos = int(value * _NANO)
    exponent = -9
    while nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if exponent_form:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"

"""Whether a text is valid under a schema as it was written: jsonschema says, and no code of ours.

Numbers are read exactly. A text is valid if any reader takes it for valid, where readers differ: classes as
`\\d` are of ASCII or of Unicode. Of a name that comes twice, the last counts, as in every common reader.
Formats are those of docs/json-schema.md: what a date and the like look like, not how many days a month has.
"""

import contextlib
import decimal
import functools
import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import jsonschema
import referencing
import regex as re  # which knows properties of characters, as JavaScript does and Python's re does not

_DATE: Final = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME: Final = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):?[0-5]\d)"
_SHAPES: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[tT ]{_TIME}",
    "duration": r"P(?=.)(\d+[YMWD])*(T(\d+[HMS])+)?",
    "email": r"[^@]+@[^@]+|\".*\"@.+",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "hostname": r"[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.?",
    "uri": r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s]*",
    "json-pointer": r"(/([^~/]|~[01])*)*",
}


class UnknownError(Exception):
    """It cannot be told."""


class Judge:
    """Judges texts by one schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = json.loads(json.dumps(schema), parse_float=Decimal)
        found = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        self._validator = _exact(found)(
            self._schema, registry=referencing.Registry(), format_checker=_checker()
        )

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a text, None where nothing is.

        Raises
        ------
        UnknownError
            jsonschema cannot tell.
        """
        try:
            value = json.loads(text, parse_float=Decimal, parse_constant=lambda _: 1 / 0)
        except decimal.DecimalException as error:
            raise UnknownError from error
        except (ValueError, ZeroDivisionError) as error:
            if "digits" in str(error):
                raise UnknownError from error
            return f"no JSON: {error}"
        try:
            with decimal.localcontext(prec=1000):  # for the remainders of long numbers
                error = next(self._validator.iter_errors(value), None)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as failure:  # a reference in a circle (a panic of rpds'), a regex of others
            raise UnknownError(str(failure)) from failure
        return None if error is None else f"{error.json_path}: {error.message[:200]}, by {error.validator}"

    def met(self, texts: Iterable[str]) -> str | None:
        """Return the first text that is valid, None where none is known to be."""
        for text in texts:
            with contextlib.suppress(UnknownError):
                if self.fault(text) is None:
                    return text
        return None


@functools.cache
def _exact(validator: Any) -> Any:
    checker = validator.TYPE_CHECKER.redefine("integer", lambda _, one: _is_integer(one))
    kinds: Any = {"pattern": _pattern, "patternProperties": _pattern_properties}
    kinds["additionalProperties"] = _additional
    extend: Any = jsonschema.validators.extend
    return extend(validator, kinds, type_checker=checker)


def _is_integer(one: Any) -> bool:
    if isinstance(one, Decimal):
        return one == one.to_integral_value()
    return isinstance(one, int) and not isinstance(one, bool)


@functools.lru_cache(4096)
def _searches(pattern: str) -> tuple[Callable[[str], Any], ...]:
    """Return a pattern's readings. Python's `$` is also before a last newline."""
    ends = re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", lambda found: found[1] or r"\Z", pattern)
    return tuple(re.compile(ends, flags).search for flags in (re.ASCII, re.UNICODE))


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not any(search(instance) for search in _searches(pattern)):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, part in patterns.items():
        for name, value in instance.items():
            if all(search(name) for search in _searches(pattern)):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional(validator: Any, further: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for name, value in instance.items():
        patterns = schema.get("patternProperties", ())
        if name in schema.get("properties", ()) or any(
            search(name) for pattern in patterns for search in _searches(pattern)
        ):
            continue
        if further is False:
            yield jsonschema.ValidationError(f"{name!r} is additional")
        elif isinstance(further, dict):
            yield from validator.descend(value, further, path=name)


@functools.cache
def _checker() -> Any:
    checker = jsonschema.FormatChecker([])

    def check(name: str, holds: Callable[[str], Any]) -> None:
        checker.checkers = {
            **checker.checkers,
            name: (lambda one: not isinstance(one, str) or bool(holds(one)), ()),
        }

    for name, shape in _SHAPES.items():
        check(name, re.compile(shape).fullmatch)
    check("ipv4", lambda text: _is_address(ipaddress.IPv4Address, text))
    check("ipv6", lambda text: _is_address(ipaddress.IPv6Address, text))
    return checker


def _is_address(kind: Callable[[str], Any], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True

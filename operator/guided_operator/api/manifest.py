"""From a manifest's text to a GuidedModel, with every fault named by its field."""

import difflib
import functools
from collections.abc import Hashable, Mapping
from typing import Any, Final, Literal, NamedTuple

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from guided_operator.api.crd import Schema, root_schema
from guided_operator.api.rule import Problem
from guided_operator.api.spec import API_VERSION, GuidedModel

_TEXT: Final = "tag:yaml.org,2002:str"
_TIME: Final = "tag:yaml.org,2002:timestamp"
# What the library raises of a value that does not look as its type wants it, such as a 45th of the month.
_NOT_OF_ITS_TYPE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ManifestError(Exception):
    """A manifest is not a valid GuidedModel; one problem per fault, and so one line each in the message."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it.

    A key is its text, so `1` and `"1"` are the same, and one that stands twice is an error, not the last
    one's victory.
    """

    # A library that vLLM imports makes SafeLoader read a time as text, in its whole process.
    yaml_constructors = yaml.SafeLoader.yaml_constructors | {_TIME: yaml.SafeLoader.construct_yaml_timestamp}

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - the library's signature
        try:
            value = super().construct_object(node, deep=deep)
            if isinstance(value, int):
                str(value)  # one that is too long to be printed could not be told of
        except _NOT_OF_ITS_TYPE as error:
            problem = f"cannot be read as {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the library's signature
        seen: set[str] = set()
        for index, (key_node, value_node) in enumerate(node.value):
            key = self._key(key_node)
            if key in seen:
                raise ManifestError([Problem(_line(key_node), f'"{key}" is a duplicate key')])
            seen.add(key)
            text = yaml.ScalarNode(_TEXT, key, key_node.start_mark, key_node.end_mark)
            node.value[index] = (text, value_node)
        return super().construct_mapping(node, deep=deep)

    def _key(self, node: yaml.Node) -> str:
        key = self.construct_object(node, deep=True)
        if not isinstance(node, yaml.ScalarNode) or key is None:
            raise ManifestError([Problem(_line(node), "a key must be text")])
        return str(key).lower() if isinstance(key, bool) else str(node.value)


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def documents(text: str) -> list[Any]:
    """Return what stands in a text of YAML (or JSON), empty documents aside.

    Raises
    ------
    ManifestError
        The text is no YAML, or nested too deeply, or a key stands twice in a mapping, or is no text.
    """
    try:
        return [document for document in yaml.load_all(text, _Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ManifestError([Problem(f"line {line}", f"not YAML: {error.problem}")]) from error
    except yaml.YAMLError as error:
        raise ManifestError([Problem("line 1", f"not YAML: {error}")]) from error
    except RecursionError as error:
        raise ManifestError([Problem("manifest", "is nested too deeply")]) from error


def is_config_map(document: Any) -> bool:
    """Return whether a document is to be a ConfigMap."""
    wanted = ("v1", "ConfigMap")
    return isinstance(document, Mapping) and (document.get("apiVersion"), document.get("kind")) == wanted


class ConfigMap(NamedTuple):
    """What grammars' texts are taken from; `namespace` "": the model's."""

    name: str
    namespace: str
    data: dict[str, str]


def config_map(document: Mapping[str, Any]) -> ConfigMap:
    """Read a ConfigMap.

    Raises
    ------
    ManifestError
        It has no name, or data that is no text.
    """
    metadata, data = document.get("metadata") or {}, document.get("data") or {}
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not isinstance(data, Mapping):
        raise ManifestError([Problem("ConfigMap", "must have metadata.name, and data that is a mapping")])
    wrong = [
        Problem(f"ConfigMap {name} data.{key}", "must be text: quote it")
        for key, value in data.items()
        if not isinstance(value, str)
    ]
    if wrong:
        raise ManifestError(wrong)
    texts = {str(key): value for key, value in data.items()}
    return ConfigMap(name, str(metadata.get("namespace") or ""), texts)


def parse(manifest: Mapping[str, Any], *, unknown: Literal["ignore"] | None = None) -> GuidedModel:
    """Read a GuidedModel from an object as the API server serves it.

    Its status is left out: another release may have written it in other shapes, and it is no part of
    what is to run.

    The schema's rules in CEL are the API server's to judge, and `cli.rules`'s where there is none.

    `unknown` "ignore" leaves out fields of the spec that this release does not know, which are a problem
    otherwise: a later one may have stored them.

    Raises
    ------
    ManifestError
        A field is unknown, missing or wrong.
    """
    wrong_type = _wrong_type(manifest)
    if wrong_type:
        raise ManifestError(wrong_type)
    wanted = {field: value for field, value in manifest.items() if field != "status"}
    try:
        return GuidedModel.model_validate(wanted, extra=unknown, by_name=False)
    except ValidationError as error:
        raise ManifestError([_problem(detail) for detail in error.errors(include_url=False)]) from error


def _wrong_type(manifest: Mapping[str, Any]) -> list[Problem]:
    # First, since every other message about a Deployment would mislead.
    wanted = {"apiVersion": API_VERSION, "kind": "GuidedModel"}
    return [
        Problem(field, f'must be "{value}", is "{manifest.get(field, "")}"')
        for field, value in wanted.items()
        if manifest.get(field) != value
    ]


def _problem(detail: ErrorDetails) -> Problem:
    path = ""
    for part in detail["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return Problem(path, _reason(detail))


def _reason(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "unknown field" + _suggestion(detail["loc"])
        case "literal_error":
            quoted = "; quote it, unquoted YAML means a boolean" if isinstance(detail["input"], bool) else ""
            return f"must be {context['expected']}, is {detail['input']!r}{quoted}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}, is {detail['input']!r}"
        case "value_error":
            return str(context["error"])
        case _:
            return detail["msg"][0].lower() + detail["msg"][1:]


def _suggestion(location: tuple[int | str, ...]) -> str:
    schema = _schema()
    for part in location[:-1]:
        schema = schema["items"] if isinstance(part, int) else schema["properties"][part]
    known = list(schema["properties"])
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f", did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"


@functools.cache
def _schema() -> Schema:
    return root_schema()

"""What a job's text says: checked, its schemas in their normal form."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults, normal, schema, tag_words
from guided_sidecar.grammar.schema.origins import Form
from guided_sidecar.grammar.worker_messages import Unenforced

WHOLE: Final = Unenforced("$", "all")  # of a text of which nothing is promised


class Grammar(NamedTuple):
    """What a job asks for.

    Attributes
    ----------
    value
        Of json and structural tags the value, its schemas in their normal form; else the text. None: it is
        compiled as it came, and nothing is promised of it.
    schemas
        All JSON schemas in it, in their normal form.
    written
        The value, or the text, as it came.
    unenforced
        What was taken out of it before.
    """

    kind: Kind
    value: Any
    schemas: list[Form]
    written: Any = None
    unenforced: Sequence[Unenforced] = ()

    def text(self) -> str:
        """Return the text as it came, without white space and escapes of JSON."""
        return self.written if isinstance(self.written, str) else json.dumps(self.written)


def read(kind: Kind, written: Any, unenforced: Sequence[Unenforced] = ()) -> Grammar:
    """Check what a job asks for, as limits.parsed returns it.

    Raises
    ------
    GuidedError
        A schema in it is wrong, or has no normal form, with its path.
    """
    if WHOLE in unenforced:
        return Grammar(kind, None, [], written, unenforced)
    if kind == "regex" and (len(written) - len(written.rstrip("\\"))) % 2:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the regex is not valid: it ends in a backslash")
    schemas: list[Form] = []

    def normalised(way: JsonPath, inner: Any) -> Any:
        path = str(way)
        try:
            schema.check(inner)
            schemas.append(normal.read(inner)._replace(path=path))
        except GuidedError as error:
            raise faults.moved(error, path) from error
        return schemas[-1].schema

    value = written
    if kind == "json":
        value = normalised(ROOT, written)
    elif kind == "structural_tag":
        tag_words.check(written)
        value = subschemas.with_each_of_tag(written, normalised)
    return Grammar(kind, value, schemas, written, unenforced)

"""The grammar backends that there are: their names, where each is implemented, and whose version counts.

Adding one is a module and a line here (docs/architecture.md, "A grammar backend").
"""

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias


class Entry(NamedTuple):
    """One backend.

    Attributes
    ----------
    name
        On the wire, in metrics and in what requests ask for; vLLM's own name where vLLM has it.
    module
        Where its `LIBRARY` is, a guided_grammar.backend.Library; only workers and ranks import it.
    distribution
        Whose version says which masks it makes.
    measured
        The versions whose enforcement of JSON Schema is known; empty: nobody has looked, and any will do.
    """

    name: str
    module: str
    distribution: str
    measured: tuple[str, ...] = ()


# By what guidedDecoding.backend calls them; Auto is none of them.
BACKENDS: Final[dict[str, Entry]] = {
    "XGrammar": Entry("xgrammar", "guided_grammar.xgrammar.library", "xgrammar", ("0.2.7", "0.2.8")),
    "Guidance": Entry("guidance", "guided_grammar.llguidance.library", "llguidance", ("1.7.6",)),
}
NAMES: Final[dict[str, str]] = {choice: entry.name for choice, entry in BACKENDS.items()}
DISTRIBUTIONS: Final = tuple(entry.distribution for entry in BACKENDS.values())

if TYPE_CHECKING:
    Backend: TypeAlias = str
    Choice: TypeAlias = str
else:  # what msgspec and pydantic check: another name is no backend
    Backend = Literal[tuple(NAMES.values())]
    Choice = Literal[("Auto", *NAMES)]


def entry(name: Backend) -> Entry:
    """Return the backend of that name; KeyError where there is none."""
    return _BY_NAME[name]


_BY_NAME: Final = {one.name: one for one in BACKENDS.values()}

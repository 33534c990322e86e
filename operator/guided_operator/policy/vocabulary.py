"""What is known of one vLLM version's options and variables, and how its parser reads words by it."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guided_operator.api.engine_args import REFUSED, option

TAKES_PARTS: Final = "-config"  # what is JSON with fields that vLLM knows is called so
_ALIKE: Final = 0.75  # of difflib: --tensor-paralel-size is as --tensor-parallel-size, --tensors is not


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names without the dashes before them; those of one vLLM version that the schema does not refuse.

    Parameters
    ----------
    switches
        Listed options that stand alone, and as --no-NAME.
    values, lists
        Listed options with one value, and with several.
    configurations
        Listed options with one value of JSON, or by parts: --NAME.PART=VALUE.
    parts
        Listed parts of options that are not listed as a whole.
    unlisted
        The version's other options, by the reason why they are not listed.
    repositories
        Listed options whose value is a repository or a folder, with the words that are none.
    with_repositories
        Options in whose JSON, at whatever place, a text with a "/" is a repository or a folder.
    variables
        Listed variables.
    unlisted_variables
        The version's other variables, by the reason why they are not listed.
    """

    switches: frozenset[str]
    values: frozenset[str]
    lists: frozenset[str]
    configurations: frozenset[str]
    parts: frozenset[str]
    unlisted: Mapping[str, frozenset[str]]
    repositories: Mapping[str, frozenset[str]]
    with_repositories: frozenset[str]
    variables: frozenset[str]
    unlisted_variables: Mapping[str, frozenset[str]]

    @property
    def listed(self) -> frozenset[str]:
        """All listed options, without parts."""
        return self.switches | self.values | self.lists | self.configurations

    def lists_option(self, name: str) -> bool:
        """Return whether an option is listed: its name with parts and --no-."""
        name = name.removeprefix("--")
        return (
            name.removeprefix("no-") in self.switches
            or name in self.values | self.lists | self.parts
            or name.split(".", 1)[0] in self.configurations
        )

    def why_unlisted(self, name: str) -> str:
        """Return why an option is not listed, "" for one that this vLLM does not have."""
        base = name.removeprefix("--").split(".", 1)[0]
        return next(
            (
                why
                for why, names in self.unlisted.items()
                if base in names or base.removeprefix("no-") in names
            ),
            "",
        )

    def completions(self, name: str) -> list[str]:
        """Return the options of this vLLM that a name is only the beginning of, none for a whole name."""
        base = name.removeprefix("--").split(".", 1)[0].removeprefix("no-")
        known = self.listed | frozenset().union(*self.unlisted.values())
        return [] if base in known else sorted(f"--{each}" for each in known if each.startswith(base))

    def closest(self, name: str) -> str:
        """Return the option that an unknown one may have been meant for, with its dashes; "" if none is."""
        known = {*self.listed, *REFUSED, *(each for names in self.unlisted.values() for each in names)}
        return _closest(name.split(".", 1)[0], [f"--{each}" for each in known])

    def closest_variable(self, name: str) -> str:
        """Return the listed variable that an unknown one may have been meant for; "" if none is."""
        return _closest(name, self.variables)

    def misplaced(self, words: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield index and fault of words that vLLM would not understand, or take for the model's name.

        How many values an option takes is known of the listed ones; others are to have theirs behind a "=".
        """
        room = 0  # values that the last option has room for
        for index, word in enumerate(words):
            name = option(word).removeprefix("--")
            base, _, part = name.partition(".")
            if not name:
                if not room:
                    yield index, _STRAY
                room -= 1
            elif name.removeprefix("no-") in self.switches:
                room = 0
                if "=" in word:
                    yield index, f"--{name} takes no value"
            elif not self.lists_option(name):
                room = 0
            else:
                room = 0 if "=" in word else len(words) if base in self.lists else 1
                if room and (index + 1 == len(words) or option(words[index + 1])):
                    yield index, f"--{base} needs a value"
                elif "-" in word.split("=", 1)[0].partition(".")[2] and base.endswith(TAKES_PARTS):
                    yield (
                        index,
                        f"parts are fields, with underscores: write --{base}.{part.replace('-', '_')}",
                    )


_STRAY: Final = (
    "is neither an option nor the value of one: vLLM would take it for the model. An option that is not "
    "listed has its value behind it, as --NAME=VALUE"
)


def _closest(name: str, known: frozenset[str] | list[str]) -> str:
    return next(iter(difflib.get_close_matches(name, sorted(known), 1, _ALIKE)), "")

"""Lexemes of a Lark grammar, and whether llguidance can tell at each place which of them is meant."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from guided_grammar.texts import literal, one_of

_JSON_STARTS: Final = '{["-0123456789tfn'
_MOST_STATES: Final = 1 << 14
LITERAL, TOKEN, JSON, NUMBER, FREE, UNTIL = range(6)


class NotTakenError(ValueError):
    """A tag is not written as Lark."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"llguidance does not support the tag: {reason}")


class Lexeme(NamedTuple):
    """What llguidance reads at once: its kind, and what tells it apart from others of its kind."""

    kind: int
    text: str


Starts = frozenset[int]  # numbers of the lexemes that may begin at a place; none: nothing follows
Part = Callable[[Starts], tuple[str, Starts]]  # from what may follow it to its Lark, and what may begin it


class Writer:
    """Writes parts of a grammar, and remembers where which lexeme stands.

    Parameters are those of tags.as_lark. `rules` are those that the parts refer to.
    """

    def __init__(self, special: Mapping[str, int], eos: int) -> None:
        self.rules: list[str] = []
        self._special = special
        self._eos = eos
        self._named = one_of(special)
        self._names: dict[str, str] = {}  # of rules, by what they hold
        self._lexemes: list[Lexeme | None] = []  # in all places where they stand; None: what is repeated
        self._behind: list[Starts] = []  # what may follow them; of what is repeated what may begin it

    def lexeme(self, lark: str, kind: int, text: str) -> Part:
        """Return one lexeme; `text` tells it apart from others of its kind."""

        def written(follow: Starts) -> tuple[str, Starts]:
            self._lexemes.append(Lexeme(kind, text))
            self._behind.append(follow)
            return lark, frozenset([len(self._behind) - 1])

        return written

    def repeated(self, content: Part, least: int, most: int) -> Part:
        """Return a part that stands there from `least` to `most` times, -1: any number."""

        def written(follow: Starts) -> tuple[str, Starts]:
            again = len(self._behind)
            self._lexemes.append(None)
            self._behind.append(frozenset())
            text, starts = content(follow if most == 1 else follow | {again})
            self._behind[again] = starts
            bounds = f"{{{least},{most if most >= 0 else ''}}}"
            return f"({text or literal('')}){bounds}", starts if least else starts | follow

        return written

    def check(self, starts: Starts) -> None:
        """Raise NotTakenError where one lexeme may be taken when another is meant."""
        stack, seen = [self._closed(starts)], set[Starts]()
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            if len(seen) > _MOST_STATES:
                raise NotTakenError("it has too many parts")
            seen.add(place)
            then: dict[Lexeme, Starts] = {}
            for number in place:
                lexeme = self._lexemes[number]
                assert lexeme is not None
                then[lexeme] = then.get(lexeme, frozenset()) | self._closed(self._behind[number])
            _check_place({lexeme: self._of(behind) for lexeme, behind in then.items()})
            stack += then.values()

    def _closed(self, starts: Starts) -> Starts:
        """Return lexemes with those that may begin what is repeated."""
        found, stack = set[int](), list(starts)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack += self._behind[number] if self._lexemes[number] is None else ()
        return frozenset(number for number in found if self._lexemes[number] is not None)

    def _of(self, numbers: Starts) -> set[Lexeme]:
        return {one for one in map(self._lexemes.__getitem__, numbers) if one is not None}

    def text(self, text: str) -> Part:
        """Return a constant text, in which special tokens are meant where they are named."""
        parts, at = list[Part](), 0
        for found in self._named.finditer(text):
            parts += [self._spelled(text[at : found.start()]), self._token(self._special[found[0]])]
            at = found.end()
        return in_order([*parts, self._spelled(text[at:])])

    def _spelled(self, text: str) -> Part:
        return self.lexeme(literal(text), LITERAL, text) if text else lambda follow: ("", follow)

    def _token(self, number: int) -> Part:
        return self.lexeme(f"<[{number}]>", TOKEN, str(number))

    def texts(self, said: Any) -> Part:
        """Return what a tag begins or ends with: a text, or one of several."""
        if isinstance(said, dict):
            raise NotTakenError("tokens by number or name are not supported")
        return self.text(said) if isinstance(said, str) else either([self.text(one) for one in said])

    def is_plain(self, text: Any) -> bool:
        """Return whether something is a text without special tokens."""
        return isinstance(text, str) and bool(text) and self._named.search(text) is None

    def free(self, excludes: Sequence[str], ends: Iterable[str]) -> Part:
        """Return free text, which has special tokens but for those in others."""
        text = f"{self._tokens(excludes, ends)} {self._text(excludes)}".strip()
        return self.lexeme(text, FREE, text)

    def until(self, excludes: Sequence[str], end: str, ends: Iterable[str]) -> Part:
        """Return free text up to the first time that it has a text, and with that."""
        until = self.named("until", f"{self._text(excludes)} {literal(end)}", "[lazy]")
        text = f"{self._tokens(excludes, ends)} {until}".strip()
        return self.lexeme(text, UNTIL, text)

    def _text(self, excludes: Sequence[str]) -> str:
        others = " | ".join(map(literal, excludes))
        without = f" & ~(/(?s:.*)/ ({others}) /(?s:.*)/)" if others else ""
        return self.named("TEXT", f"/(?s:.*)/{without}")

    def _tokens(self, excludes: Sequence[str], ends: Iterable[str]) -> str:
        """Return free text that ends with a special token, any number of times."""
        never = {found[0] for end in ends if (found := self._named.search(end))}
        numbers = sorted(
            number
            for text, number in self._special.items()
            if number != self._eos and text not in never and not any(one in text for one in excludes)
        )
        return f"({self._text(excludes)} <[{','.join(map(_range, numbers))}]>)*" if numbers else ""

    def named(self, prefix: str, body: str, options: str = "") -> str:
        """Return the name of a rule with this body."""
        if body not in self._names:
            self._names[body] = f"{prefix}{len(self._names)}"
            self.rules.append(f"{self._names[body]}{options}: {body}")
        return self._names[body]


def _range(number: int) -> str:
    return f"{number}-{number}"


def in_order(parts: Sequence[Part]) -> Part:
    """Return parts one behind the other."""

    def written(follow: Starts) -> tuple[str, Starts]:
        texts = list[str]()
        for part in reversed(parts):
            text, follow = part(follow)
            texts.insert(0, text)
        return " ".join(filter(None, texts)), follow

    return written


def either(ways: Sequence[Part]) -> Part:
    """Return one of several parts."""

    def written(follow: Starts) -> tuple[str, Starts]:
        found = [way(follow) for way in ways]
        texts = list(dict.fromkeys(text or literal("") for text, _ in found))
        starts = frozenset[int]().union(*(starts for _, starts in found))
        return (texts[0] if len(texts) == 1 else f"({' | '.join(texts)})"), starts

    if not ways:
        raise NotTakenError("it has no tags")
    return written


def _check_place(lexemes: Mapping[Lexeme, set[Lexeme]]) -> None:
    """Raise NotTakenError where of lexemes at one place, with what may follow, a longer is taken for one."""
    is_mixed = len({one.kind for one in lexemes}) > 1  # of a thousand tools' names it is not
    for lexeme, behind in lexemes.items():
        others = [one for one in lexemes if one.kind != lexeme.kind] if is_mixed else []
        if lexeme.kind in (FREE, UNTIL) and any(one.kind not in (TOKEN, FREE, UNTIL) for one in others):
            raise NotTakenError("its free text cannot be separated from alternatives at the same place")
        if lexeme.kind == FREE and any(one.kind != TOKEN for one in behind):
            raise NotTakenError("nothing ends its free text")
        if lexeme.kind == LITERAL and any(_may_begin(one, lexeme.text[0]) for one in others):
            raise NotTakenError(f"an alternative of {lexeme.text!r:.60} begins with the same character")
        if lexeme.kind == NUMBER and any(_may_begin(one, digit) for one in behind for digit in "0123456789"):
            raise NotTakenError("the part after its digits may begin with a digit")
    literals = sorted(one for one in lexemes if one.kind == LITERAL)
    for shorter, longer in itertools.pairwise(literals):
        rest = longer.text.removeprefix(shorter.text)
        if rest != longer.text and any(_may_begin(one, rest[0]) for one in lexemes[shorter]):
            raise NotTakenError(
                f"{shorter.text!r:.60} with the next part is ambiguous with {longer.text!r:.60}"
            )


def _may_begin(lexeme: Lexeme, character: str) -> bool:
    """Return whether a lexeme may begin with a character."""
    if lexeme.kind == JSON:
        return character in _JSON_STARTS
    if lexeme.kind == NUMBER:
        return character.isdigit()
    return lexeme.text[0] == character if lexeme.kind == LITERAL else lexeme.kind != TOKEN

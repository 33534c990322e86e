"""A structural tag as one Lark grammar, in which the arguments of calls are JSON as in a response_format.

llguidance reads lexemes, the longest first, where xgrammar follows all that may be meant. So a tag is taken
only where it can be told soon which lexeme is meant: free text from what ends it, literals from one another,
JSON from all else. There both take the same (docs/decisions/0041-tags-by-llguidance.md).
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from guided_grammar.texts import new_form, one_of

_JSON_STARTS: Final = '{["-0123456789tfn'
_DIGITS: Final = (r"\d+", "[0-9]+")  # to llguidance the first is digits of any script
# Parsers of several models read no call whose arguments have ends of lines.
_ON_ONE_LINE: Final = {"x-guidance": {"whitespace_pattern": "[ ]"}}
_MOST_STATES: Final = 1 << 14
_LITERAL, _TOKEN, _JSON, _NUMBER, _FREE, _UNTIL = range(6)
_REPEATS: Final = {"optional": (0, 1), "plus": (1, -1), "star": (0, -1)}


class NotTakenError(ValueError):
    """A tag is not written as Lark."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"llguidance does not support the tag: {reason}")


class _Lexeme(NamedTuple):
    kind: int
    text: str  # which tells it apart from others of its kind


_Starts = frozenset[int]  # numbers of the lexemes that may begin at a place; none: nothing follows
_Part = Callable[[_Starts], tuple[str, _Starts]]  # from what may follow it to its Lark, and what may begin it


def as_lark(tag: Any, special: Mapping[str, int], eos: int) -> str:
    """Write a structural tag, of the old form or the new, as Lark.

    Parameters
    ----------
    special
        Token ids of special tokens by their texts.
    eos
        The one that ends a text.

    Raises
    ------
    NotTakenError
        It has a part that is not written so, or two that would be taken for one another.
    """
    writer = _Writer(special, eos)
    start, starts = writer.part(new_form(tag)["format"])(frozenset())
    writer.check(starts)
    return "\n".join(["%llguidance {}", f"start: {start or _literal('')}", *writer.rules])


class _Writer:
    def __init__(self, special: Mapping[str, int], eos: int) -> None:
        self.rules: list[str] = []
        self._special = special
        self._eos = eos
        self._named = one_of(special)
        self._names: dict[str, str] = {}  # of rules, by what they hold
        self._lexemes: list[_Lexeme | None] = []  # in all places where they stand; None: what is repeated
        self._behind: list[_Starts] = []  # what may follow them; of what is repeated what may begin it

    def part(self, part: Any) -> _Part:
        """Return a part of a tag."""
        write = _WRITERS.get(part.get("type", "tag"))  # which a tag among others may leave out
        if write is None:
            raise NotTakenError(f"it has no {part['type']}")
        return write(self, part)

    def lexeme(self, lark: str, kind: int, text: str) -> _Part:
        """Return one lexeme; `text` tells it apart from others of its kind."""

        def written(follow: _Starts) -> tuple[str, _Starts]:
            self._lexemes.append(_Lexeme(kind, text))
            self._behind.append(follow)
            return lark, frozenset([len(self._behind) - 1])

        return written

    def repeated(self, content: _Part, least: int, most: int) -> _Part:
        """Return a part that stands there from `least` to `most` times, -1: any number."""

        def written(follow: _Starts) -> tuple[str, _Starts]:
            again = len(self._behind)
            self._lexemes.append(None)
            self._behind.append(frozenset())
            text, starts = content(follow if most == 1 else follow | {again})
            self._behind[again] = starts
            bounds = f"{{{least},{most if most >= 0 else ''}}}"
            return f"({text or _literal('')}){bounds}", starts if least else starts | follow

        return written

    def check(self, starts: _Starts) -> None:
        """Raise NotTakenError where one lexeme may be taken when another is meant."""
        stack, seen = [self._closed(starts)], set[_Starts]()
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            if len(seen) > _MOST_STATES:
                raise NotTakenError("it has too many parts")
            seen.add(place)
            then: dict[_Lexeme, _Starts] = {}
            for number in place:
                lexeme = self._lexemes[number]
                assert lexeme is not None
                then[lexeme] = then.get(lexeme, frozenset()) | self._closed(self._behind[number])
            _check_place({lexeme: self._of(behind) for lexeme, behind in then.items()})
            stack += then.values()

    def _closed(self, starts: _Starts) -> _Starts:
        """Return lexemes with those that may begin what is repeated."""
        found, stack = set[int](), list(starts)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack += self._behind[number] if self._lexemes[number] is None else ()
        return frozenset(number for number in found if self._lexemes[number] is not None)

    def _of(self, numbers: _Starts) -> set[_Lexeme]:
        return {one for one in map(self._lexemes.__getitem__, numbers) if one is not None}

    def text(self, text: str) -> _Part:
        """Return a constant text, in which special tokens are meant where they are named."""
        parts, at = list[_Part](), 0
        for found in self._named.finditer(text):
            parts += [self._spelled(text[at : found.start()]), self.token(found[0])]
            at = found.end()
        return _in_order([*parts, self._spelled(text[at:])])

    def _spelled(self, text: str) -> _Part:
        return self.lexeme(_literal(text), _LITERAL, text) if text else lambda follow: ("", follow)

    def texts(self, said: Any) -> _Part:
        """Return what a tag begins or ends with: a text, one of several, or a token."""
        if isinstance(said, dict):
            return self.token(said["token"])
        return self.text(said) if isinstance(said, str) else _either([self.text(one) for one in said])

    def token(self, token: int | str) -> _Part:
        """Return a token, by its id or as a special one's text."""
        number = self._special.get(token) if isinstance(token, str) else token
        if number is None:
            raise NotTakenError(f"{token!r:.60} is no special token")
        return self.lexeme(f"<[{number}]>", _TOKEN, str(number))

    def is_plain(self, text: Any) -> bool:
        """Return whether something is a text without special tokens."""
        return isinstance(text, str) and bool(text) and self._named.search(text) is None

    def free(self, excludes: Sequence[str], ends: Iterable[str]) -> _Part:
        """Return free text, which has special tokens but for those in others."""
        text = f"{self._tokens(excludes, ends)} {self._text(excludes)}".strip()
        return self.lexeme(text, _FREE, text)

    def until(self, excludes: Sequence[str], end: str, ends: Iterable[str]) -> _Part:
        """Return free text up to the first time that it has a text, and with that."""
        until = self.named("until", f"{self._text(excludes)} {_literal(end)}", "[lazy]")
        text = f"{self._tokens(excludes, ends)} {until}".strip()
        return self.lexeme(text, _UNTIL, text)

    def _text(self, excludes: Sequence[str]) -> str:
        others = " | ".join(map(_literal, excludes))
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


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _in_order(parts: Sequence[_Part]) -> _Part:
    def written(follow: _Starts) -> tuple[str, _Starts]:
        texts = list[str]()
        for part in reversed(parts):
            text, follow = part(follow)
            texts.insert(0, text)
        return " ".join(filter(None, texts)), follow

    return written


def _either(ways: Sequence[_Part]) -> _Part:
    def written(follow: _Starts) -> tuple[str, _Starts]:
        found = [way(follow) for way in ways]
        texts = list(dict.fromkeys(text or _literal("") for text, _ in found))
        starts = frozenset[int]().union(*(starts for _, starts in found))
        return (texts[0] if len(texts) == 1 else f"({' | '.join(texts)})"), starts

    if not ways:
        raise NotTakenError("it has no tags")
    return written


def _check_place(lexemes: Mapping[_Lexeme, set[_Lexeme]]) -> None:
    """Raise NotTakenError where of lexemes at one place, with what may follow, a longer is taken for one."""
    is_mixed = len({one.kind for one in lexemes}) > 1  # of a thousand tools' names it is not
    for lexeme, behind in lexemes.items():
        others = [one for one in lexemes if one.kind != lexeme.kind] if is_mixed else []
        if lexeme.kind in (_FREE, _UNTIL) and any(one.kind not in (_TOKEN, _FREE, _UNTIL) for one in others):
            raise NotTakenError("nothing tells its free text from what else may begin there")
        if lexeme.kind == _FREE and any(one.kind != _TOKEN for one in behind):
            raise NotTakenError("nothing ends its free text")
        if lexeme.kind == _LITERAL and any(_may_begin(one, lexeme.text[0]) for one in others):
            raise NotTakenError(f"what may stand in the place of {lexeme.text!r:.60} begins alike")
        if lexeme.kind == _NUMBER and any(_may_begin(one, digit) for one in behind for digit in "0123456789"):
            raise NotTakenError("what follows its digits may begin with one")
    literals = sorted(one for one in lexemes if one.kind == _LITERAL)
    for shorter, longer in itertools.pairwise(literals):
        rest = longer.text.removeprefix(shorter.text)
        if rest != longer.text and any(_may_begin(one, rest[0]) for one in lexemes[shorter]):
            raise NotTakenError(f"{shorter.text!r:.60} and what follows may be taken for {longer.text!r:.60}")


def _may_begin(lexeme: _Lexeme, character: str) -> bool:
    """Return whether a lexeme may begin with a character."""
    if lexeme.kind == _JSON:
        return character in _JSON_STARTS
    if lexeme.kind == _NUMBER:
        return character.isdigit()
    return lexeme.text[0] == character if lexeme.kind == _LITERAL else lexeme.kind != _TOKEN


def _json_schema(writer: _Writer, part: Any) -> _Part:
    schema, style = part["json_schema"], part.get("style", "json")
    if style != "json" or part.get("any_order") or part.get("excludes"):
        raise NotTakenError(f"it has no JSON of the style {style}, or in any order, or with excludes")
    if part.get("max_whitespace_cnt") is not None or schema is False:
        raise NotTakenError("it has no JSON without a value, or with so much white space")
    form = {**_ON_ONE_LINE, **({} if schema is True else schema)}
    name = writer.named("json", f"%json {json.dumps(form)}")
    return writer.lexeme(name, _JSON, name)


def _regex(writer: _Writer, part: Any) -> _Part:
    pattern = part["pattern"]
    if pattern in _DIGITS:
        return writer.lexeme("/[0-9]+/", _NUMBER, "")
    if not pattern or "/" in pattern or "\n" in pattern:
        raise NotTakenError("it has no such regex")
    return writer.lexeme(f"/{pattern}/", _FREE, pattern)


def _any_text(writer: _Writer, part: Any) -> _Part:
    def written(follow: _Starts) -> tuple[str, _Starts]:
        if follow:
            raise NotTakenError("nothing ends its free text")
        return writer.free(_excludes(part), ())(follow)

    return written


def _excludes(part: Any) -> Sequence[str]:
    """Return what free text has not."""
    if part.get("max_tokens") is not None or part.get("max_chars") is not None:
        raise NotTakenError("it has no free text of some length")
    return part.get("excludes") or ()


def _tag(writer: _Writer, part: Any) -> _Part:
    return _in_order([writer.texts(part["begin"]), _inside(writer, part)])


def _inside(writer: _Writer, part: Any) -> _Part:
    """Return a tag's content and end."""
    content, end = part["content"], part["end"]
    if content["type"] != "any_text":
        return _in_order([writer.part(content), writer.texts(end)])
    if writer.is_plain(end):
        return writer.until(_excludes(content), end, ())
    ends = [end] if isinstance(end, str) else [] if isinstance(end, dict) else end
    return _in_order([writer.free(_excludes(content), ends), writer.texts(end)])


def _triggered_tags(writer: _Writer, part: Any) -> _Part:
    tags, triggers = part["tags"], part["triggers"]
    ways = [way for trigger in triggers for way in _triggered(writer, trigger, part)]
    for tag in tags:
        if not isinstance(tag["begin"], str) or sum(map(tag["begin"].startswith, triggers)) != 1:
            raise NotTakenError(f"no trigger begins {tag['begin']!r:.80}, or several do")
    first = [_either([_tag(writer, tag) for tag in tags])] if part.get("at_least_one") else []
    free = writer.free(_excludes(part), triggers)
    if part.get("stop_after_first"):
        return first[0] if first else _either([free, *ways])
    return _in_order([*first, writer.repeated(_either(ways), 0, -1), free])


def _triggered(writer: _Writer, trigger: str, part: Any) -> list[_Part]:
    """Return free text and the tags that a trigger begins."""
    begun = [tag for tag in part["tags"] if tag["begin"].startswith(trigger)]
    if not trigger or not begun:
        raise NotTakenError(f"no tag begins with the trigger {trigger!r:.80}")
    rest = _either(
        [_in_order([writer.text(tag["begin"][len(trigger) :]), _inside(writer, tag)]) for tag in begun]
    )
    # Who spells special tokens out has begun the tag, too.
    ways = [_in_order([writer.until(_excludes(part), trigger, part["triggers"]), rest])]
    if not writer.is_plain(trigger):
        free = writer.free(_excludes(part), part["triggers"])
        ways.append(_in_order([free, writer.text(trigger), rest]))
    return ways


def _tags_with_separator(writer: _Writer, part: Any) -> _Part:
    tag = _either([_tag(writer, one) for one in part["tags"]])
    least = int(bool(part.get("at_least_one")))
    if part.get("stop_after_first"):
        return tag if least else writer.repeated(tag, 0, 1)
    if not part["separator"]:
        return writer.repeated(tag, least, -1)
    others = writer.repeated(_in_order([writer.text(part["separator"]), tag]), 0, -1)
    several = _in_order([tag, others])
    return several if least else writer.repeated(several, 0, 1)


def _repeat(writer: _Writer, part: Any) -> _Part:
    least, most = _REPEATS.get(part["type"]) or (part["min"], part["max"])
    return writer.repeated(writer.part(part["content"]), least, most)


def lacks(part: Any) -> str | None:
    """Return why no tokenizer lets a part of a tag be written as Lark; None: it may be."""
    kind = part.get("type", "tag")
    if kind not in _WRITERS:
        return f"llguidance has no {kind}"
    try:
        if kind in ("json_schema", "regex"):
            _WRITERS[kind](_Writer({}, -1), part)
    except NotTakenError as error:
        return str(error)
    inner = [part[key] for key in ("content", "format") if key in part]
    inner += [one for key in ("elements", "tags") for one in part.get(key, ())]
    return next(filter(None, map(lacks, inner)), None)


_WRITERS: Final[Mapping[str, Callable[[_Writer, Any], _Part]]] = {
    "any_text": _any_text,
    "const_string": lambda writer, part: writer.text(part["value"]),
    "json_schema": _json_schema,
    "or": lambda writer, part: _either([writer.part(one) for one in part["elements"]]),
    "regex": _regex,
    "repeat": _repeat,
    "sequence": lambda writer, part: _in_order([writer.part(one) for one in part["elements"]]),
    "tag": _tag,
    "tags_with_separator": _tags_with_separator,
    "token": lambda writer, part: writer.token(part["token"]),
    "triggered_tags": _triggered_tags,
    **dict.fromkeys(_REPEATS, _repeat),
}

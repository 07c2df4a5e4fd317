"""Makes texts that match a regular expression of classes, groups, alternatives and repetitions."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Maker = Callable[[random.Random], str]

#: The characters of ``.`` and of negated classes, and the most repetitions above the least number.
_ANY = string.ascii_letters + string.digits
_MOST_REPEATS = 10
_CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": _ANY + "_",
    "CATEGORY_SPACE": " ",
}


def regexify(pattern: str) -> Maker:
    """A maker of texts that match ``pattern``. ValueError for a part that cannot be made: assertions, back
    references."""
    try:
        parsed: Any = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except re.error as err:
        raise ValueError(f"{pattern!r} is no regular expression: {err}") from None
    return _sequence(list(parsed))


def _sequence(parts: list[Any]) -> Maker:
    makers = [_maker(str(kind), value) for kind, value in parts]
    return lambda source: "".join(maker(source) for maker in makers)


def _maker(kind: str, value: Any) -> Maker:
    match kind:
        case "LITERAL":
            letter = chr(value)
            return lambda source: letter
        case "ANY":
            return lambda source: source.choice(_ANY)
        case "IN":
            letters = _letters(value)
            return lambda source: source.choice(letters)
        case "SUBPATTERN":
            return _sequence(list(value[-1]))
        case "BRANCH":
            branches = [_sequence(list(branch)) for branch in value[1]]
            return lambda source: source.choice(branches)(source)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, part = value
            inner, top = _sequence(list(part)), min(int(most), int(least) + _MOST_REPEATS)
            return lambda source: "".join(inner(source) for _ in range(source.randint(least, top)))
    raise ValueError(f"{kind.lower()} in a regular expression that is to be made")


def _letters(parts: list[Any]) -> str:
    found: list[str] = []
    negated = False
    for kind, value in ((str(k), v) for k, v in parts):
        match kind:
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                found.extend(map(chr, range(value[0], value[1] + 1)))
            case "CATEGORY" if str(value) in _CATEGORIES:
                found.extend(_CATEGORIES[str(value)])
            case _:
                raise ValueError(f"{kind.lower()} in a class of a regular expression")
    letters = "".join(c for c in _ANY if c not in found) if negated else "".join(dict.fromkeys(found))
    if not letters:
        raise ValueError("a class without letters")
    return letters

"""Finding the items that make a whole fail: by cutting it in halves, as long as a part fails.

A batch of n items of which one fails takes about 2·log₂ n calls, and one call when none does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Part = TypeVar("Part")
Result = TypeVar("Result")


def by_halves(
    whole: Part,
    attempt: Callable[[Part], Result],
    refused: Callable[[Part, Exception], None],
    *,
    halves: Callable[[Part], tuple[Part, Part] | None],
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> Iterator[Result]:
    """The results of ``attempt`` on the whole, or on the parts of it that do not fail, in their order.

    ``halves`` cuts a part in two; None says that it is a single item. A single item for which ``attempt``
    raises one of ``errors`` goes to ``refused`` and has no result; what ``refused`` raises ends it all.
    """
    todo = [whole]
    while todo:
        part = todo.pop()
        try:
            result = attempt(part)
        except errors as err:
            two = halves(part)
            if two is None:
                refused(part, err)
            else:
                todo += reversed(two)
            continue
        yield result


def first_failing(
    whole: Part,
    attempt: Callable[[Part], object],
    error: Exception,
    *,
    halves: Callable[[Part], tuple[Part, Part] | None],
) -> tuple[Part, Exception]:
    """The first item that fails by itself, and its error; the smallest part that only fails together, if none.

    ``whole`` failed with ``error``.
    """
    part = whole
    while (two := halves(part)) is not None:
        for half in two:
            try:
                attempt(half)
            except Exception as found:
                part, error = half, found
                break
        else:
            break
    return part, error

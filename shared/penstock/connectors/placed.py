"""Finds the message of a place in a stream among those that are being decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

M = TypeVar("M")


class PlacedMessages(Generic[M]):
    """The messages of a batch by their places. ``where``: a message's place in the stream, as errors name it.

    The places are made with the first message that is asked for, since most batches have no bad message.
    """

    def __init__(self, where: Callable[[M], str]) -> None:
        self._where = where
        self._messages: Sequence[M] = ()
        self._by_place: dict[str, M] | None = None

    def are(self, messages: Sequence[M]) -> None:
        """From now on these messages are decoded."""
        self._messages, self._by_place = messages, None

    def at(self, place: str) -> M | None:
        """The message at ``place``; None if it is not among them."""
        if self._by_place is None:
            self._by_place = {self._where(message): message for message in self._messages}
        return self._by_place.get(place)

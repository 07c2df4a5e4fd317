"""The Nexmark model: computes every number of an event from the seed and the event's number.

Events come in *epochs* of 50: one person, three auctions, 46 bids. All functions take
epochs, int64 of shape (e,), and give int64 arrays of shape (e, k), k events of one kind
an epoch. Random bits are a 64-bit hash of the event number, so any event can be made
alone, in any batch, by any reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EVENTS_PER_EPOCH = 50
PERSON, AUCTION, BID = 0, 1, 2
#: Kind → the place of its first event in an epoch, and its number of events.
PLACE = {PERSON: (0, 1), AUCTION: (1, 3), BID: (4, 46)}

FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE = 1000
IN_FLIGHT_AUCTIONS = 100
#: Random ids may be this far ahead of the existing ones.
ID_LEAD = 10
#: Every hundredth id is hot.
HOT_STRIDE = 100

_U = np.uint64
_C1, _C2, _GOLDEN = _U(0xFF51AFD7ED558CCD), _U(0xC4CEB9FE1A85EC53), _U(0x9E3779B97F4A7C15)
_S33 = _U(33)

#: 100 × 10 ** U(0, 6), as the product of two tables: 24 random bits.
_PRICE_HIGH = 100.0 * 10.0 ** (6.0 * np.arange(4096) / 4096)
_PRICE_LOW = 10.0 ** (6.0 * np.arange(4096) / 4096 / 4096)


def _seed_word(seed: int, salt: int) -> np.uint64:
    return _U((seed * 0xD1B54A32D192ED03 + salt * 0x8CB92BA72F3D8DD7 + 0x2545F4914F6CDD1D) % 2**64)


def random_words(events: np.ndarray, seed: int, salt: int = 0) -> np.ndarray:
    """Random int64 words for event numbers; the lowest 62 bits are usable."""
    h = events.view(np.uint64) * _GOLDEN
    h += _seed_word(seed, salt)
    h ^= h >> _S33
    h *= _C1
    h ^= h >> _S33
    h *= _C2
    h ^= h >> _S33
    return h.view(np.int64)


def below(words: np.ndarray, shift: int, bits: int, bound: np.ndarray | int) -> np.ndarray:
    """Uniform numbers in [0, bound) from ``bits`` bits of the words at ``shift`` (bound << bits must fit in
    int64)."""
    out = words >> shift
    out &= (1 << bits) - 1
    out *= bound
    out >>= bits
    return out


def prices(words: np.ndarray, shift: int) -> np.ndarray:
    """round(10 ** U(0, 6) * 100), from 24 bits at ``shift``."""
    high = _PRICE_HIGH[(words >> shift) & 0xFFF]
    high *= _PRICE_LOW[(words >> (shift + 12)) & 0xFFF]
    np.rint(high, out=high)
    return high.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Model:
    """``rate``: events a second of event time. ``disorder_ms``: an event's time may lag
    its place in the order by up to that. Times are µs in whole milliseconds."""

    seed: int = 42
    rate: int = 10_000
    base_ms: int = 1_700_000_000_000
    disorder_ms: int = 0

    def events(self, epochs: np.ndarray, kind: int) -> np.ndarray:
        """The numbers (int64[epochs, n]) of the epochs' events of one kind."""
        first, count = PLACE[kind]
        return epochs[:, None] * EVENTS_PER_EPOCH + np.arange(first, first + count, dtype=np.int64)

    def times_us(self, events: np.ndarray) -> np.ndarray:
        """The event times (int64 µs) of events."""
        out = events * 1000
        out //= self.rate
        if self.disorder_ms:
            out -= below(random_words(events, self.seed, 7), 0, 31, self.disorder_ms + 1)
        out += self.base_ms
        out *= 1000
        return out

    # -- bids -------------------------------------------------------------------------

    def bid_numbers(self, events: np.ndarray, epochs: np.ndarray, want: set[str]) -> dict[str, np.ndarray]:
        """Columns auction, bidder, price, those in ``want``."""
        out: dict[str, np.ndarray] = {}
        if not want & {"auction", "bidder", "price"}:
            return out
        words = random_words(events, self.seed, BID)
        if "auction" in want:
            last = epochs * 3 + 2
            low = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
            cold = below(words, 3, 16, (last - low + (1 + ID_LEAD))[:, None])
            hot = (last // HOT_STRIDE * HOT_STRIDE - low)[:, None]
            auction = np.where(words & 1, hot, cold)
            auction += (low + FIRST_ID)[:, None]
            out["auction"] = auction
        if "bidder" in want:
            out["bidder"] = self._near_person(words, epochs, hot_offset=1)
        if "price" in want:
            out["price"] = prices(words, 39)
        return out

    def _near_person(self, words: np.ndarray, epochs: np.ndarray, *, hot_offset: int) -> np.ndarray:
        """Ids of persons: in 3 of 4 cases the hot person (bits 1–2), otherwise one of the active persons
        (bits 19–38)."""
        people = epochs + 1
        active = np.minimum(people, ACTIVE_PEOPLE)
        low = people - active
        cold = below(words, 19, 20, (active + ID_LEAD)[:, None])
        hot = (epochs // HOT_STRIDE * HOT_STRIDE + hot_offset - low)[:, None]
        out = np.where(words & 6, hot, cold)
        out += (low + FIRST_ID)[:, None]
        return out

    # -- auctions and persons -----------------------------------------------------------

    def auction_numbers(
        self, events: np.ndarray, epochs: np.ndarray, want: set[str]
    ) -> dict[str, np.ndarray]:
        """The numeric columns ``want`` of auctions."""
        words = random_words(events, self.seed, AUCTION)
        more = random_words(events, self.seed, 11)
        out: dict[str, np.ndarray] = {}
        if "id" in want:
            out["id"] = (epochs * 3 + FIRST_ID)[:, None] + np.arange(3, dtype=np.int64)
        if want & {"initialBid", "reserve"}:
            out["initialBid"] = prices(words, 39)
        if "reserve" in want:
            out["reserve"] = out["initialBid"] + prices(more, 39)
        if "seller" in want:
            out["seller"] = self._near_person(words, epochs, hot_offset=0)
        if "category" in want:
            out["category"] = below(more, 0, 16, CATEGORIES) + FIRST_CATEGORY
        if "expires" in want:
            out["expires"] = self._expires(events, more)
        return out

    def _expires(self, events: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The ends of auctions: after 1 ms to twice the time in which ``IN_FLIGHT_AUCTIONS`` auctions
        open."""
        span = IN_FLIGHT_AUCTIONS * EVENTS_PER_EPOCH // 3
        horizon = (events + span) * 1000 // self.rate - events * 1000 // self.rate
        length = 1 + below(words, 16, 20, np.maximum(2 * horizon, 1))
        return self.times_us(events) + length * 1000

    def person_ids(self, epochs: np.ndarray) -> np.ndarray:
        """The ids of the epochs' persons, int64[epochs, 1]."""
        return (epochs + FIRST_ID)[:, None]

"""The texts of Nexmark events: slices of pools that are made once from the seed.

The n-th person, auction or bid has the (n mod size)-th texts of its pool. A pool is
stored twice over, so that any run of consecutive entries is one zero-copy slice.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.types.arrow_buffers import binary_array, offsets_of_lengths, recut, value_offsets

PERSON_POOL, AUCTION_POOL, BID_POOL = 8_192, 16_384, 65_536
AVERAGE_PERSON, AVERAGE_AUCTION, AVERAGE_BID = 200, 500, 100

_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_CHANNELS = 10_000


class TextPool:
    """Strings by number; they repeat after ``size`` strings."""

    def __init__(self, entries: pa.Array) -> None:
        self.size = len(entries)
        self._twice = pa.concat_arrays([entries, entries])
        self._offsets = value_offsets(self._twice)

    def run(self, first: int, count: int) -> pa.Array:
        """Entries of ordinals first … first + count - 1, without a copy."""
        if count > self.size:
            parts = [self.run(first + i, min(self.size, count - i)) for i in range(0, count, self.size)]
            return pa.concat_arrays(parts)
        return self._twice.slice(first % self.size, count)

    def spread(self, first: int, before: np.ndarray) -> pa.Array:
        """Row i has the next entry where ``before[i + 1] > before[i]`` and is empty (to be
        masked) elsewhere; ``before``: int[n + 1], entries used up before each row."""
        start = first % self.size
        offsets = self._offsets[start:][before]
        return recut(self._twice, offsets)


def _letters(rng: np.random.Generator, lengths: np.ndarray, special: str | None = None) -> pa.Array:
    """Random lower-case words of the given lengths; one letter in 13 is ``special``."""
    offsets = offsets_of_lengths(lengths)
    data = rng.integers(97, 123, int(offsets[-1]), dtype=np.uint8)
    if special is not None:
        data[rng.integers(0, 13, len(data), dtype=np.uint8) == 0] = ord(special)
    return binary_array(pa.string(), offsets, data)


def _words(rng: np.random.Generator, count: int, longest: int, special: str = " ") -> pa.Array:
    """Words of 3 … longest - 1 letters."""
    return pc.utf8_trim(_letters(rng, rng.integers(3, longest, count), special), characters=special)


def _fill(rng: np.random.Generator, used: np.ndarray, average: int) -> pa.Array:
    """Filler texts that bring events of ``used`` bytes to about ``average`` bytes, ± 20 %."""
    room = np.maximum(average - used, 0)
    delta = np.round(room * 0.2).astype(np.int64)
    more = (rng.random(len(room)) * np.maximum(2 * delta, 1)).astype(np.int64)
    return _letters(rng, room - delta + np.where(delta > 0, more, 0))


def _pick(rng: np.random.Generator, values: list[str], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))


def _join(*parts: pa.Array | str, by: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*parts, by)


def _lengths(*arrays: pa.Array) -> np.ndarray:
    return sum(pc.binary_length(a).to_numpy().astype(np.int64) for a in arrays)


@lru_cache(maxsize=2)
def person_pools(seed: int) -> dict[str, TextPool]:
    """The text columns of persons: for each a pool of random values."""
    rng = np.random.default_rng([seed, 1])
    n = PERSON_POOL
    name = _join(_pick(rng, _FIRST_NAMES, n), _pick(rng, _LAST_NAMES, n), by=" ")
    mail = _join(_words(rng, n, 7, "_"), "@", _words(rng, n, 5, "_"), ".com")
    digits = [pc.utf8_lpad(pa.array(rng.integers(0, 10_000, n)).cast(pa.string()), 4, "0") for _ in range(4)]
    card = _join(*digits, by=" ")
    city, state = _pick(rng, _CITIES, n), _pick(rng, _STATES, n)
    extra = _fill(rng, 8 + _lengths(name, mail, card, city, state), AVERAGE_PERSON)
    columns = {
        "name": name, "emailAddress": mail, "creditCard": card, "city": city, "state": state, "extra": extra,
    }  # fmt: skip
    return {key: TextPool(value) for key, value in columns.items()}


@lru_cache(maxsize=2)
def auction_pools(seed: int) -> dict[str, TextPool]:
    """The text columns of auctions: for each a pool of random values."""
    rng = np.random.default_rng([seed, 2])
    item, description = _words(rng, AUCTION_POOL, 20), _words(rng, AUCTION_POOL, 100)
    extra = _fill(rng, 48 + _lengths(item, description), AVERAGE_AUCTION)
    return {"itemName": TextPool(item), "description": TextPool(description), "extra": TextPool(extra)}


@lru_cache(maxsize=2)
def bid_pools(seed: int) -> dict[str, TextPool]:
    """The text columns of bids. ``channel`` and ``url`` belong together, so the same entry gives both."""
    rng = np.random.default_rng([seed, 3])
    channels, urls = _channels(rng)
    hot = rng.integers(0, 2, BID_POOL) > 0
    cold = len(_HOT_CHANNELS) + rng.integers(0, _CHANNELS, BID_POOL)
    chosen = pa.array(np.where(hot, rng.integers(0, len(_HOT_CHANNELS), BID_POOL), cold))
    extra = _fill(rng, np.full(BID_POOL, 32), AVERAGE_BID)
    return {
        "channel": TextPool(channels.take(chosen)),
        "url": TextPool(urls.take(chosen)),
        "extra": TextPool(extra),
    }


def _channels(rng: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """All channels and their addresses; nine in ten cold ones carry a channel id."""
    n = len(_HOT_CHANNELS) + _CHANNELS
    words = [_words(rng, n, 5, "_") for _ in range(3)]
    urls = _join(_join("https://www.nexmark.com", *words, by="/"), "/item.htm?query=1")
    number = np.arange(_CHANNELS, dtype=np.uint32)
    reversed_bits = np.zeros(_CHANNELS, np.uint64)
    for bit in range(14):  # 10,000 < 2**14; the rest of the 32 bits are 0
        reversed_bits |= ((number.astype(np.uint64) >> np.uint64(bit)) & np.uint64(1)) << np.uint64(31 - bit)
    ids = np.abs(reversed_bits.astype(np.uint32).view(np.int32).astype(np.int64))
    with_id = np.concatenate([np.zeros(len(_HOT_CHANNELS), np.bool_), rng.integers(0, 10, _CHANNELS) > 0])
    id_text = pa.array(np.concatenate([np.zeros(len(_HOT_CHANNELS), np.int64), ids])).cast(pa.string())
    urls = pc.if_else(pa.array(with_id), _join(urls, "&channel_id=", id_text), urls)
    names = pa.array(_HOT_CHANNELS + [f"channel-{i}" for i in range(_CHANNELS)])
    return names, urls

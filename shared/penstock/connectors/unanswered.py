"""Which errors say that a store or a catalog does not answer now, and how long a client asks before it says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.errors import ExternalError, PenstockError, ServerAwayError
from penstock.store.open import IMPATIENT_RETRIES, IMPATIENT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What delta-rs and obstore (the crate object_store) and Arrow's clients of stores write when no answer came, or one
#: that says "later". They have no classes of errors for that.
_UNANSWERED = re.compile(
    r"error sending request|error reading a body|connection (?:refused|reset|closed)|operation timed out|timed out"
    r"|non-2xx status code: (?:429|5\d\d)|status code: (?:429|5\d\d)"
    r"|AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING)"
    r"|couldn't connect|could not connect|curlCode: (?:6|7|28|52|56)\b|dns error",
    re.IGNORECASE,
)

#: delta-rs paints its errors for a terminal.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def unanswered(text: str) -> bool:
    """Whether the text of an error says that no server answered, or that it asks for another try."""
    return _UNANSWERED.search(text) is not None


def failed(title: str, err: BaseException, where: str, *, away: bool = False, **more: Any) -> ExternalError:
    """The error for a failure of a store or a catalog; a ServerAwayError with ``away`` and where its text says so."""
    known = err.got if isinstance(err, PenstockError) and err.got else f"{type(err).__name__}: {err}"
    said = " ".join(_COLOURS.sub("", known).split())
    kind = ServerAwayError if away or unanswered(said) else ExternalError
    return kind(title, got=said, where=where, **more)


def impatient(options: Mapping[str, str]) -> dict[str, str]:
    """Options of delta-rs's store with few repetitions, unless they say how many: the sink repeats, and says for what it waits."""
    return {"max_retries": str(IMPATIENT_RETRIES), "retry_timeout": f"{IMPATIENT_S}s", **options}

"""Credentials in options and URLs, taken out of whatever is shown: errors, logs, REST, SHOW CREATE.

The one place that knows how: errors redact their texts when they are made, services and
slots redact each line that they log.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN = "******"
#: Words in the keys of options whose values are never shown: Flink's, and those of our connectors and formats.
_SENSITIVE = re.compile(
    r"password|passwd|pwd|passphrase|secret|token|credential|jaas|basic[-._]auth|auth[-._]params|user[-._]info"
    r"|api[-._]?key|service[-._]key|(?:access|account|private|shared)[-._]?key|ssl\.key\.pem|http[-._]headers|signature"
    r"|(?:^|\.)headers?(?:\.|$)|connection[-._]string",
    re.IGNORECASE,
)
#: Keys with such a word whose values tell a place or a choice.
_HARMLESS = re.compile(
    r"credentials[-._]source$|\.endpoint\.url$|[-._](?:uri|expiration|timeout|ms)$", re.IGNORECASE
)
#: A secret shorter than this is not looked for in texts: it would be found in every other word.
_SHORTEST = 4
#: The secrets that this process has looked up.
_secrets: set[str] = set()
#: ``//user:password@``, ``//token@``: up to the last ``@`` before the path, since a password may hold one.
_USER_INFO = re.compile(r"//[^/\s]*@")
#: ``?password=…``, ``;pwd=…``: parameters of JDBC, S3 and HTTP URLs that hold secrets.
_PARAMETER = re.compile(
    r"([?&;](?:user|username|password|passwd|pwd|secret|token|auth_token|access[-_]?token|api[-_]?key"
    r"|(?:aws[-_])?(?:secret[-_]access[-_]key|access[-_]key[-_]id|session[-_]token)"
    r"|x-amz-(?:signature|credential|security-token)|sig|signature)=)[^&;\s'\"]+",
    re.IGNORECASE,
)


#: ``secret:NAME``, or ``${secret:NAME}`` inside a longer value (``penstock.secrets``).
_REFERENCE = re.compile(r"^secret:|\$\{secret:")


def hide(secret: str) -> None:
    """From now on, ``secret`` is replaced in whatever this process shows."""
    if len(secret) >= _SHORTEST:
        _secrets.add(secret)


def sensitive(key: str) -> bool:
    """Whether the value of the option ``key`` may be a password, a key or a token."""
    return _SENSITIVE.search(key) is not None and _HARMLESS.search(key) is None


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be shown: ``******`` for what is sensitive and written as plain text, and for
    credentials in URLs. A reference to a secret stays, for it tells a name only."""
    return {k: HIDDEN if hidden(k, v) else without_credentials(v) for k, v in options.items()}


def hidden_note(shown: Mapping[str, str]) -> str:
    """Comments above a statement that say which of its options are hidden, and what to write instead."""
    keys = [k for k, v in sorted(shown.items()) if v == HIDDEN]
    return "".join(
        f"-- '{k}' is hidden, because it was written as plain text; write '{k}' = 'secret:NAME' instead\n"
        for k in keys
    )


def hidden(key: str, value: str) -> bool:
    """Whether the value of an option is sensitive, and no reference to a secret."""
    return bool(value) and sensitive(key) and not _REFERENCE.search(value)


def without_credentials(text: str) -> str:
    """``text`` with users and passwords of the URLs in it replaced: ``nats://******@host:4222``.

    Secrets that options named (``hide``) are replaced, too. What holds none of them comes back as it is.
    """
    for secret in _secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if "//" in text and "@" in text:
        text = _USER_INFO.sub(f"//{HIDDEN}@", text)
    if "=" in text and (":" in text):
        text = _PARAMETER.sub(rf"\g<1>{HIDDEN}", text)
    return text

"""Credentials in URLs, taken out of whatever is shown: errors, logs, REST.

The one place that knows how: errors redact their texts when they are made, services and
slots redact each line that they log.
"""

from __future__ import annotations

import re

HIDDEN = "******"
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


def hide(secret: str) -> None:
    """From now on, ``secret`` is replaced in whatever this process shows."""
    if len(secret) >= _SHORTEST:
        _secrets.add(secret)


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

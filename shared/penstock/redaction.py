"""Credentials in URLs, taken out of whatever is shown: errors, logs, REST.

The one place that knows how: errors redact their texts when they are made, services and
slots redact each line that they log.
"""

from __future__ import annotations

import re

HIDDEN = "******"
#: ``//user:password@``, ``//token@``: up to the last ``@`` before the path, since a password may hold one.
_USER_INFO = re.compile(r"//[^/\s]*@")
#: ``?password=…``, ``;pwd=…``: parameters of JDBC, S3 and HTTP URLs that hold secrets.
_PARAMETER = re.compile(
    r"([?&;](?:user|username|password|passwd|pwd|secret|token|auth_token|access[-_]?token|api[-_]?key"
    r"|(?:aws[-_])?(?:secret[-_]access[-_]key|access[-_]key[-_]id|session[-_]token)"
    r"|x-amz-(?:signature|credential|security-token)|sig|signature)=)[^&;\s'\"]+",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """``text`` with users and passwords of the URLs in it replaced: ``nats://******@host:4222``.

    What holds no URL comes back as it is.
    """
    if "//" in text and "@" in text:
        text = _USER_INFO.sub(f"//{HIDDEN}@", text)
    if "=" in text and (":" in text):
        text = _PARAMETER.sub(rf"\g<1>{HIDDEN}", text)
    return text

"""What all messages are: frozen, by keyword, told apart by ``type``."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass

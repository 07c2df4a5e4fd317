"""The base of all messages on the bus."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A frozen struct with keyword-only fields. The field ``type`` holds the tag that tells the messages
    apart."""

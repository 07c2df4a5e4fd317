"""Connectors in a process of their own (``runs = 'helper'``).

``hosted`` puts a connector's readers, writers, enumerators and lookups into helper processes, one each:
``source``, ``sink`` and ``lookup`` are their proxies in the slot, ``child`` and what it imports is the process.
Both ends speak ``messages`` over a socket pair (``channel``); batches cross as Arrow.
"""

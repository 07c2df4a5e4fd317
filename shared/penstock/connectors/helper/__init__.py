"""Connectors in a process of their own (``runs = 'helper'``).

``hosted`` puts a connector's readers, writers, enumerators and lookups into helper processes, one each:
``source``, ``sink`` and ``lookup`` have their proxies in the slot; ``child`` and its imports run in the
helper process. Both ends exchange ``messages`` over a socket pair (``channel``), with batches as Arrow
streams.
"""

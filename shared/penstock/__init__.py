"""Penstock: a stream processor with Flink's architecture and vocabulary, native to Python.

The library that users import and the services share. Importing this package is
cheap: no submodule is loaded until it is asked for.
"""

__version__ = "0.1.0"

"""The module ``pyflink`` itself: has the PyFlink release whose names Penstock follows."""

#: PyFlink's release that the names follow.
__version__ = "2.3.0"
version = __version__

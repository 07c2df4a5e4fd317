"""``pyflink`` itself: the release whose names these are."""

#: PyFlink's release that the names follow.
__version__ = "2.3.0"
version = __version__

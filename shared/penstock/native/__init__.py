"""Compiled twins of hot kernels, and how they are built and found."""

from penstock.native.library import library

__all__ = ["library"]

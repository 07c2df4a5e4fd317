"""Kernels over columns: hashing, grouping, sorting, joining, the key index and accumulators.

All of them work on a whole batch at a time. A *slot* is a small dense number that stands for a key.
"""

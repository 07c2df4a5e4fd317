"""Offers Penstock under the names of other packages, so that programs written for those packages run
unchanged."""

"""Experiments as data, and the running of them."""

"""Curiax in other libraries' hands."""

"""Plumbing that every service needs and that knows no word of the domain."""

"""Adapters: each implements one port. Only `app` imports them."""

"""Zones: built from the registry, read, checked, compared, published."""

"""Outgoing HTTP, bounded in size, time and destination."""

"""Responses to DNS queries, as functions over bytes: no socket, clock or file."""

"""Responses to DNS queries, as functions over bytes: no socket, clock or file.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

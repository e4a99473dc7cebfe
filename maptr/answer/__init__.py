"""Responses to DNS queries, as functions over bytes: no socket, clock or file.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

"""DNSSEC validation in the client (RFC 4035 section 5), from trust anchors to the security of an answer.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

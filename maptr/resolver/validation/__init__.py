"""DNSSEC validation in the client (RFC 4035 section 5), from trust anchors to the security of an answer.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

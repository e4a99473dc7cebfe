"""DNSSEC signing of zones: keys, policy, signatures and their expiry.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

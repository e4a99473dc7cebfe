"""DNSSEC signing of zones: keys, policy, signatures and their expiry.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

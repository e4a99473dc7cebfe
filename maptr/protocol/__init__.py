"""The vocabulary of DNS: numbers, names, serials, cookies, addresses.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

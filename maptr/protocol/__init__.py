"""The vocabulary of DNS: numbers, names, serials, cookies, addresses.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

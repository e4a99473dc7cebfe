"""Accidents: what an operator, a disk, a clock or a stranger does to a server, and which names are lost because of it.

``sites`` has the machines to which an accident happens: a primary (maptr, BIND, NSD, Knot or PowerDNS) and its
secondary; ``tables`` has maptr with a table that it pulls, ``gateways`` a gateway. These two and ``zones`` have the
accidents, each a function over its site. ``outcome`` runs one and judges it: which names are no longer answered, and
which alarm is raised. ``page`` writes docs/accidents.md from the outcomes, which docs/accidents.json keeps.
"""

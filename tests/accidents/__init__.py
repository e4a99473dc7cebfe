"""Accidents: damage to a server by an operator, a disk, a clock or an attacker, and the names that are lost by it.

``sites`` has the machines to which an accident happens: a primary (maptr, BIND, NSD, Knot or PowerDNS) and its
secondary; ``tables`` has maptr with a pulled table, ``gateways`` a gateway. These two and ``zones`` have the accidents,
each a function over its site. ``outcome`` runs an accident and judges it: which names are no longer answered, and which
alarm is raised. ``page`` writes docs/accidents.md from the outcomes in docs/accidents.json.
"""

"""The server: sockets, signals and files around ``maptr.answer.respond``, which decides every response.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

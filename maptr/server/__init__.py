"""The server: sockets, signals and files around ``maptr.answer.respond``, which decides every response.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

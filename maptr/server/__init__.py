"""The server: sockets, signals and files around ``maptr.answer.respond.respond``, which decides every reply."""

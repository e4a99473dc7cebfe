"""The server: sockets, signals and files around ``maptr.answer.respond``, which decides every response."""

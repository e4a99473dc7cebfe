"""What ``scripts/bench`` is made of. Nothing here is part of the package, and the tests use but a smoke of it."""

"""What a mapping authority says of an ARK, and whether it answers."""

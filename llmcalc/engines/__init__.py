"""How real engines allocate the same arrays."""

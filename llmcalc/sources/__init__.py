"""Where a config comes from."""

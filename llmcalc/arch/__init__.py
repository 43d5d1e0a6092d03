"""What a model is: layer kinds, stacks, families. Pure, no I/O beyond the packaged facts."""

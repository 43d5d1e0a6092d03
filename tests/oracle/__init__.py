"""The reference decoder against the estimates, against transformers, and against itself."""

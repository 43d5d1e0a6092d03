"""Exact figures of language models from their public configs."""

"""Calculators: pure functions of an architecture."""

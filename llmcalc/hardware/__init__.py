"""Accelerators: what they can do at best, by their data sheets."""

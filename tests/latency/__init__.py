"""Tests of what devices can do."""

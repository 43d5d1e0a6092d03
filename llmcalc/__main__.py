"""``python -m llmcalc``."""

from llmcalc.cli import main

main()

"""One report, rendered as text, JSON, CSV or Markdown."""

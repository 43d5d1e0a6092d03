"""Facts: model configs, class defaults."""

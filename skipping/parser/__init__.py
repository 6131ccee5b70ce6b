"""The statements of a skipping index: text in, immutable values out. Nothing is resolved or run."""

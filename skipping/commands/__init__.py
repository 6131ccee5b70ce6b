"""Statements, run: each is a few calls of SkippingIndex, and rows to show."""

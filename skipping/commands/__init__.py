"""Run statements with SkippingIndex, and show the results as rows."""

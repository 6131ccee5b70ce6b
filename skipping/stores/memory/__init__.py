"""The store in this process's memory: the oracle that the others are tested against."""

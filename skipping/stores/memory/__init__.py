"""The store in this process's memory, against which the others are tested."""

"""The store in this process's memory, the reference for the tests of other stores."""

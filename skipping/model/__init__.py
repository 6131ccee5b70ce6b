"""What an index is, kept in stores and compared by value: definitions, states, leases, names."""

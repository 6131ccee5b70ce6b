"""Define the values that describe an index in a store: definitions, states, leases, names."""

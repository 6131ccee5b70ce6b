"""Hypothesis on a shared machine: no deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "providers", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("providers")

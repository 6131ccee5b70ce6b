"""Queries that open only the files that can match.

>>> import rewrite
>>> spark = rewrite.session()  # doctest: +SKIP
"""

from rewrite.explain import Explanation, explain
from rewrite.history import history
from rewrite.monitoring import PrometheusCollector, counters
from rewrite.session import Session, disable, enable, session
from rewrite.shadow import Alarm
from rewrite.verify import Verification, alarms, verify

__all__ = [
    "Alarm",
    "Explanation",
    "PrometheusCollector",
    "Session",
    "Verification",
    "alarms",
    "counters",
    "disable",
    "enable",
    "explain",
    "history",
    "session",
    "verify",
]

"""Run Spark queries that open only the files that can match.

>>> import rewrite
>>> spark = rewrite.session()  # doctest: +SKIP
"""

from skipping.requirements import require_spark

require_spark()  # fail early, with a clear message

from rewrite.bridge.background_verification import Alarm  # noqa: E402
from rewrite.bridge.install import analyze_expression  # noqa: E402
from rewrite.observe.explain import Explanation, explain  # noqa: E402
from rewrite.observe.history import history, own_workload  # noqa: E402
from rewrite.observe.prometheus import PrometheusCollector, counters  # noqa: E402
from rewrite.observe.statements import report  # noqa: E402
from rewrite.observe.tab import render_section  # noqa: E402
from rewrite.observe.verify import Verification, alarms, verify  # noqa: E402
from rewrite.session import Session, disable, enable, session  # noqa: E402
from skipping.extensions import Extensions, extend  # noqa: E402

extend(Extensions(analyze_expression, report, render_section, own_workload))

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
